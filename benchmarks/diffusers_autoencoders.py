"""Small autoencoders of diffusers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from diffusers_small import Small, noise

_IMAGE: Mapping[str, Any] = {"sample": noise(2, 3, 16, 16)}
_KL: Mapping[str, Any] = {
    "block_out_channels": (8, 16),
    "down_block_types": ("DownEncoderBlock2D",) * 2,
    "up_block_types": ("UpDecoderBlock2D",) * 2,
    "norm_num_groups": 4,
}
_DC: Mapping[str, Any] = {
    "latent_channels": 4,
    "attention_head_dim": 4,
    "encoder_block_types": ("ResBlock", "EfficientViTBlock"),
    "decoder_block_types": ("ResBlock", "EfficientViTBlock"),
    "encoder_layers_per_block": (1, 1),
    "decoder_layers_per_block": (1, 1),
}

AUTOENCODERS: Mapping[str, Small] = {
    "AutoencoderKL": Small(
        _KL,
        _IMAGE,
    ),
    "AutoencoderKL-sample": Small(
        _KL,
        _IMAGE | {"sample_posterior": True},
    ),
    "AsymmetricAutoencoderKL": Small(
        {
            "down_block_types": ("DownEncoderBlock2D",) * 2,
            "down_block_out_channels": (8, 16),
            "up_block_types": ("UpDecoderBlock2D",) * 2,
            "up_block_out_channels": (8, 16),
            "norm_num_groups": 4,
        },
        _IMAGE | {"mask": torch.ones(2, 1, 16, 16)},
    ),
    "AutoencoderTiny": Small(
        {
            "encoder_block_out_channels": (8, 8),
            "decoder_block_out_channels": (8, 8),
            "num_encoder_blocks": (1, 2),
            "num_decoder_blocks": (2, 1),
        },
        _IMAGE,
    ),
    "VQModel": Small(
        _KL | {"num_vq_embeddings": 32},
        _IMAGE,
    ),
    "VQModel-spatial": Small(
        {
            "block_out_channels": (32, 32),
            "down_block_types": ("DownEncoderBlock2D", "AttnDownEncoderBlock2D"),
            "up_block_types": ("AttnUpDecoderBlock2D", "UpDecoderBlock2D"),
            "num_vq_embeddings": 32,
            "norm_type": "spatial",
        },
        _IMAGE,
    ),
    "AutoencoderDC": Small(
        _DC
        | {
            "encoder_block_out_channels": (8, 16),
            "decoder_block_out_channels": (8, 16),
            "encoder_qkv_multiscales": ((), (5,)),
            "decoder_qkv_multiscales": ((), (5,)),
        },
        _IMAGE,
    ),
    "AutoencoderDC-plain": Small(
        _DC
        | {
            "encoder_block_out_channels": (8, 8),
            "decoder_block_out_channels": (8, 8),
            "encoder_qkv_multiscales": ((), ()),
            "decoder_qkv_multiscales": ((), ()),
            "upsample_block_type": "interpolate",
            "downsample_block_type": "conv",
            "decoder_norm_types": "batch_norm",
            "decoder_act_fns": "relu",
            "encoder_out_shortcut": False,
            "decoder_in_shortcut": False,
        },
        _IMAGE,
    ),
    "AutoencoderOobleck": Small(
        {
            "encoder_hidden_size": 8,
            "downsampling_ratios": [2, 4],
            "channel_multiples": [1, 2],
            "decoder_channels": 8,
            "decoder_input_channels": 4,
        },
        {"sample": noise(2, 2, 64)},
    ),
    "AutoencoderKLTemporalDecoder": Small(
        {"block_out_channels": (32, 32), "down_block_types": ("DownEncoderBlock2D",) * 2},
        {"sample": noise(3, 3, 16, 16), "num_frames": 3},
    ),
    "AutoencoderKLWan": Small(
        {
            "base_dim": 4,
            "z_dim": 4,
            "dim_mult": [1, 1, 1],
            "num_res_blocks": 1,
            "temperal_downsample": [False, True],
            "latents_mean": [0.0] * 4,
            "latents_std": [1.0] * 4,
        },
        {"sample": noise(1, 3, 5, 16, 16)},
    ),
    "AutoencoderKLQwenImage": Small(
        {
            "base_dim": 4,
            "z_dim": 4,
            "dim_mult": [1, 1],
            "num_res_blocks": 1,
            "temperal_downsample": [True],
            "latents_mean": [0.0] * 4,
            "latents_std": [1.0] * 4,
        },
        {"sample": noise(1, 3, 1, 16, 16)},
    ),
    "AutoencoderKLLTXVideo": Small(
        {
            "latent_channels": 8,
            "block_out_channels": (8, 8, 8, 8),
            "decoder_block_out_channels": (8, 8, 8, 8),
            "layers_per_block": (1, 1, 1, 1, 1),
            "decoder_layers_per_block": (1, 1, 1, 1, 1),
            "spatio_temporal_scaling": (True, True, False, False),
            "decoder_spatio_temporal_scaling": (True, True, False, False),
        },
        {"sample": noise(1, 3, 5, 16, 16)},
    ),
    "AutoencoderKLCogVideoX": Small(
        {
            "block_out_channels": (8, 8),
            "down_block_types": ("CogVideoXDownBlock3D",) * 2,
            "up_block_types": ("CogVideoXUpBlock3D",) * 2,
            "latent_channels": 4,
            "layers_per_block": 1,
            "norm_num_groups": 2,
            "temporal_compression_ratio": 2,
        },
        {"sample": noise(1, 3, 4, 8, 8)},
    ),
    "AutoencoderKLMochi": Small(
        {
            "encoder_block_out_channels": (32, 32, 32, 32),
            "decoder_block_out_channels": (32, 32, 32, 32),
            "latent_channels": 4,
            "layers_per_block": (1, 1, 1, 1, 1),
            "add_attention_block": (False, True, False, False, True),
            "latents_mean": None,
            "latents_std": None,
        },
        {"sample": noise(1, 3, 7, 16, 16)},
    ),
    "AutoencoderKLHunyuanVideo": Small(
        {
            "latent_channels": 4,
            "block_out_channels": (8, 8, 8, 8),
            "layers_per_block": 1,
            "norm_num_groups": 4,
        },
        {"sample": noise(1, 3, 5, 16, 16)},
    ),
    "AutoencoderKLMagvit": Small(
        {
            "latent_channels": 4,
            "block_out_channels": [8, 8],
            "down_block_types": ["SpatialDownBlock3D", "SpatialTemporalDownBlock3D"],
            "up_block_types": ["SpatialUpBlock3D", "SpatialTemporalUpBlock3D"],
            "layers_per_block": 1,
            "norm_num_groups": 4,
        },
        {"sample": noise(1, 3, 5, 16, 16)},
    ),
    "AutoencoderKLCosmos": Small(
        {
            "latent_channels": 4,
            "encoder_block_out_channels": (8, 8, 8),
            "decode_block_out_channels": (8, 8, 8),
            "attention_resolutions": (8,),
            "resolution": 64,
            "num_layers": 1,
            "spatial_compression_ratio": 4,
            "temporal_compression_ratio": 4,
        },
        {"sample": noise(1, 3, 5, 32, 32)},
    ),
}
