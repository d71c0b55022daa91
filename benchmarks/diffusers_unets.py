"""Small U-Nets of diffusers, and what goes beside them: control nets and adapters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import diffusers
import torch
from diffusers_small import MASK, TEXT, Small, below, noise
from torch import nn


def _adapter() -> nn.Module:
    return diffusers.T2IAdapter(in_channels=3, channels=[8, 8], num_res_blocks=1, downscale_factor=4)


_UNET: Mapping[str, Any] = {
    "sample_size": 8,
    "block_out_channels": (8, 16),
    "layers_per_block": 1,
    "norm_num_groups": 4,
}
_CROSS_DOWN: Mapping[str, Any] = {"down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D")}
_CROSS: Mapping[str, Any] = _CROSS_DOWN | {"up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D")}
_LATENT: Mapping[str, Any] = {"sample": noise(2, 4, 8, 8), "timestep": below(1000, 2)}
_ADAPTER: Mapping[str, Any] = {
    "in_channels": 3,
    "channels": [8, 16],
    "num_res_blocks": 1,
    "downscale_factor": 4,
}
_PICTURE: Mapping[str, Any] = {"x": noise(2, 3, 32, 32)}
_FILM: Mapping[str, Any] = {"sample": noise(1, 4, 3, 8, 8), "timestep": below(1000, 1)}

UNETS: Mapping[str, Small] = {
    "UNet2DModel": Small(
        _UNET
        | {
            "attention_head_dim": 4,
            "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
            "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
        },
        {"sample": noise(2, 3, 8, 8), "timestep": below(1000, 2)},
    ),
    "UNet2DModel-skip": Small(
        {
            "block_out_channels": (32, 32),
            "layers_per_block": 1,
            "attention_head_dim": None,
            "time_embedding_type": "fourier",
            "freq_shift": 0,
            "mid_block_scale_factor": 2**0.5,
            "down_block_types": ("SkipDownBlock2D", "AttnSkipDownBlock2D"),
            "up_block_types": ("AttnSkipUpBlock2D", "SkipUpBlock2D"),
        },
        {"sample": noise(2, 3, 8, 8), "timestep": below(1000, 2)},
    ),
    "UNet2DModel-consistency": Small(
        _UNET
        | {
            "time_embedding_type": "learned",
            "num_train_timesteps": 64,
            "add_attention": False,
            "resnet_time_scale_shift": "scale_shift",
            "down_block_types": ("ResnetDownsampleBlock2D",) * 2,
            "up_block_types": ("ResnetUpsampleBlock2D",) * 2,
        },
        {"sample": noise(2, 3, 8, 8), "timestep": below(64, 2)},
    ),
    "UNet2DConditionModel": Small(
        _UNET | _CROSS | {"attention_head_dim": 2, "cross_attention_dim": 16, "dropout": 0.1},
        _LATENT | TEXT,
    ),
    "UNet2DConditionModel-SDXL": Small(
        _UNET
        | _CROSS
        | {
            "attention_head_dim": (2, 4),
            "cross_attention_dim": 16,
            "use_linear_projection": True,
            "transformer_layers_per_block": (1, 2),
            "addition_embed_type": "text_time",
            "addition_time_embed_dim": 8,
            "projection_class_embeddings_input_dim": 64,
        },
        _LATENT | TEXT | {"added_cond_kwargs": {"text_embeds": noise(2, 16), "time_ids": below(64, 2, 6)}},
    ),
    "UNet2DConditionModel-simple": Small(
        _UNET
        | {
            "attention_head_dim": 4,
            "cross_attention_dim": 16,
            "act_fn": "gelu",
            "resnet_time_scale_shift": "scale_shift",
            "mid_block_type": "UNetMidBlock2DSimpleCrossAttn",
            "down_block_types": ("ResnetDownsampleBlock2D", "SimpleCrossAttnDownBlock2D"),
            "up_block_types": ("SimpleCrossAttnUpBlock2D", "ResnetUpsampleBlock2D"),
            "class_embed_type": "timestep",
        },
        _LATENT | TEXT | {"class_labels": below(10, 2), "encoder_attention_mask": MASK},
    ),
    "UNet1DModel": Small(
        {
            "sample_size": 64,
            "extra_in_channels": 64,
            "block_out_channels": (32, 32, 64),
        },
        {"sample": noise(2, 2, 64), "timestep": below(1000, 2)},
    ),
    "UNet1DModel-value": Small(
        {
            "in_channels": 6,
            "out_channels": 6,
            "time_embedding_type": "positional",
            "use_timestep_embedding": True,
            "flip_sin_to_cos": False,
            "freq_shift": 1.0,
            "block_out_channels": (16, 32),
            "act_fn": "mish",
            "norm_num_groups": 4,
            "down_block_types": ("DownResnetBlock1D", "DownResnetBlock1D"),
            "up_block_types": ("UpResnetBlock1D",),
            "mid_block_type": "MidResTemporalBlock1D",
            "out_block_type": "OutConv1DBlock",
        },
        {"sample": noise(2, 6, 16), "timestep": below(1000, 2)},
    ),
    "UNet3DConditionModel": Small(
        _UNET
        | {
            "attention_head_dim": 4,
            "cross_attention_dim": 16,
            "down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D"),
            "up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D"),
        },
        _FILM | {"encoder_hidden_states": noise(1, 6, 16)},
    ),
    "UNetSpatioTemporalConditionModel": Small(
        {
            "sample_size": 8,
            "in_channels": 4,
            "block_out_channels": (32, 32),
            "layers_per_block": 1,
            "cross_attention_dim": 16,
            "num_attention_heads": (2, 4),
            "addition_time_embed_dim": 8,
            "projection_class_embeddings_input_dim": 24,
            "down_block_types": ("CrossAttnDownBlockSpatioTemporal", "DownBlockSpatioTemporal"),
            "up_block_types": ("UpBlockSpatioTemporal", "CrossAttnUpBlockSpatioTemporal"),
        },
        {
            "sample": noise(1, 3, 4, 8, 8),
            "timestep": below(1000, 1),
            "encoder_hidden_states": noise(1, 1, 16),
            "added_time_ids": below(64, 1, 3),
        },
    ),
    "UNetMotionModel": Small(
        _UNET
        | {
            "num_attention_heads": 2,
            "motion_num_attention_heads": 2,
            "cross_attention_dim": 16,
            "down_block_types": ("CrossAttnDownBlockMotion", "DownBlockMotion"),
            "up_block_types": ("UpBlockMotion", "CrossAttnUpBlockMotion"),
        },
        _FILM | {"encoder_hidden_states": noise(3, 6, 16)},
    ),
    "I2VGenXLUNet": Small(
        {
            "sample_size": 8,
            "block_out_channels": (8, 16),
            "layers_per_block": 1,
            "norm_num_groups": 4,
            "attention_head_dim": 4,
            "num_attention_heads": 2,
            "cross_attention_dim": 16,
            "down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D"),
            "up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D"),
        },
        _FILM
        | {
            "fps": below(30, 1),
            "image_latents": noise(1, 4, 3, 8, 8),
            "image_embeddings": noise(1, 16),
            "encoder_hidden_states": noise(1, 6, 16),
        },
    ),
    "Kandinsky3UNet": Small(
        {
            "time_embedding_dim": 8,
            "groups": 2,
            "attention_head_dim": 4,
            "layers_per_block": 2,
            "block_out_channels": (8, 16),
            "cross_attention_dim": 8,
            "encoder_hid_dim": 16,
        },
        _LATENT | TEXT | {"encoder_attention_mask": MASK},
    ),
    "StableCascadeUNet": Small(
        {
            "in_channels": 4,
            "out_channels": 4,
            "timestep_ratio_embedding_dim": 8,
            "conditioning_dim": 16,
            "block_out_channels": (16, 16),
            "num_attention_heads": (2, 2),
            "down_num_layers_per_block": (1, 1),
            "up_num_layers_per_block": (1, 1),
            "clip_text_in_channels": 16,
            "clip_text_pooled_in_channels": 16,
            "clip_image_in_channels": 16,
            "clip_seq": 2,
            "switch_level": (False,),
        },
        {
            "sample": noise(2, 4, 8, 8),
            "timestep_ratio": lambda generator: torch.rand(2, generator=generator),
            "clip_text_pooled": noise(2, 1, 16),
            "clip_text": noise(2, 6, 16),
            "clip_img": noise(2, 1, 16),
        },
    ),
    "UVit2DModel": Small(
        {
            "hidden_size": 16,
            "cond_embed_dim": 16,
            "micro_cond_encode_dim": 2,
            "micro_cond_embed_dim": 10,
            "encoder_hidden_size": 16,
            "vocab_size": 32,
            "codebook_size": 32,
            "in_channels": 16,
            "block_out_channels": 16,
            "num_res_blocks": 1,
            "downsample": True,
            "upsample": True,
            "block_num_heads": 2,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 32,
        },
        {
            "input_ids": below(32, 2, 8, 8),
            "encoder_hidden_states": noise(2, 6, 16),
            "pooled_text_emb": noise(2, 16),
            "micro_conds": noise(2, 5),
        },
    ),
    "UNetControlNetXSModel": Small(
        {
            "sample_size": 8,
            "block_out_channels": (8, 16),
            "norm_num_groups": 4,
            "num_attention_heads": 2,
            "cross_attention_dim": 16,
            "ctrl_block_out_channels": (4, 8),
            "ctrl_num_attention_heads": 1,
            "ctrl_max_norm_num_groups": 2,
            "ctrl_conditioning_embedding_out_channels": (4, 4),
        }
        | _CROSS,
        _LATENT | TEXT | {"controlnet_cond": noise(2, 3, 16, 16)},
    ),
    "ControlNetModel": Small(
        {
            "block_out_channels": (8, 16),
            "layers_per_block": 1,
            "norm_num_groups": 4,
            "attention_head_dim": 2,
            "cross_attention_dim": 16,
            "conditioning_embedding_out_channels": (4, 4),
        }
        | _CROSS_DOWN,
        _LATENT | TEXT | {"controlnet_cond": noise(2, 3, 16, 16)},
    ),
    "SparseControlNetModel": Small(
        {
            "block_out_channels": (8, 16),
            "layers_per_block": 1,
            "norm_num_groups": 4,
            "attention_head_dim": 2,
            "motion_num_attention_heads": 2,
            "cross_attention_dim": 16,
            "down_block_types": ("CrossAttnDownBlockMotion", "DownBlockMotion"),
            "conditioning_embedding_out_channels": (4, 4),
        },
        {
            "sample": noise(1, 4, 3, 8, 8),
            "timestep": below(1000, 1),
            "encoder_hidden_states": noise(3, 6, 16),
            "controlnet_cond": noise(1, 4, 3, 8, 8),
            "conditioning_mask": noise(1, 1, 3, 8, 8),
        },
    ),
    "T2IAdapter": Small(_ADAPTER, _PICTURE),
    "T2IAdapter-light": Small(_ADAPTER | {"adapter_type": "light_adapter"}, _PICTURE),
    "MultiAdapter": Small(
        {"adapters": lambda: [_adapter(), _adapter()]},
        {"xs": [noise(2, 3, 16, 16), noise(2, 3, 16, 16)], "adapter_weights": [0.7, 0.3]},
    ),
}
