"""A small member of each of many model types of diffusers, and what to call it with.

    python benchmarks/zoo.py --library diffusers --ways float32 bfloat16 float16 training --write docs/zoo-diffusers.md

Each type is built from a configuration written out in `benchmarks/zoo_diffusers.py`, with few layers, narrow, with
random weights, also where training would begin at zero, and compared with eager: in float32, in bfloat16 or float16
autocast, or in float32 in training mode, where dropout draws and batch norms count. A name is that of a class, or of a
class and, behind a dash, of what its configuration asks for. What ran in eager torch instead of ONNX Runtime is counted
beside. No fault is planted: a verdict other than *agree* is a false alarm, or a finding.
Where the verdict says that a model departs before ONNX, it is compiled once more with torch's own backend ``eager``,
and the page says how far that lies from the plain model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import diffusers
import torch
from torch import nn
from zoo_models import NotMade

Draw = Callable[[torch.Generator], torch.Tensor]
"""Makes a tensor by chance."""


@dataclass(frozen=True)
class Small:
    """What a class is built with, and what the model is called with: values, or draws of them."""

    config: Mapping[str, Any]
    arguments: Mapping[str, Any]


def noise(*shape: int) -> Draw:
    """Normal numbers."""
    return lambda generator: torch.randn(shape, generator=generator)


def below(limit: int, *shape: int) -> Draw:
    """Whole numbers below a limit: tokens, labels, steps in time."""
    return lambda generator: torch.randint(limit, shape, generator=generator)


def build(kind: str) -> tuple[nn.Module, dict[str, Any]]:
    """A member in evaluation mode with random weights, and keyword arguments that it runs on.

    Raises NotMade where the installed version has no such class.
    """
    small, name = KINDS[kind], kind.split("-", maxsplit=1)[0]
    if not hasattr(diffusers, name):
        raise NotMade(f"diffusers {diffusers.__version__} has no {name}")
    torch.manual_seed(0)
    config = {name: value() if callable(value) else value for name, value in small.config.items()}
    model: nn.Module = getattr(diffusers, name)(**config).float().eval()
    _draw_zeros(model)
    generator = torch.Generator().manual_seed(1)
    arguments = {name: _drawn(value, generator) for name, value in small.arguments.items()}
    with torch.no_grad():
        model(**arguments)
    return model, arguments


def kinds() -> list[str]:
    """Every type that has a configuration here."""
    return sorted(KINDS)


def _draw_zeros(model: nn.Module) -> None:
    """Draws the weights that start at zero: what is behind them would have no gradient."""
    with torch.no_grad():
        for each in model.parameters():
            if not each.any():
                each.normal_(std=0.02)


def _drawn(value: Any, generator: torch.Generator) -> Any:
    if isinstance(value, dict):
        return {name: _drawn(each, generator) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_drawn(each, generator) for each in value)
    return value(generator) if callable(value) else value


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
_TEXT: Mapping[str, Any] = {"encoder_hidden_states": noise(2, 6, 16)}
_FILM: Mapping[str, Any] = {"sample": noise(1, 4, 3, 8, 8), "timestep": below(1000, 1)}
_IMAGE: Mapping[str, Any] = {"sample": noise(2, 3, 16, 16)}
_MASK = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])

_UNETS: Mapping[str, Small] = {
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
        _LATENT | _TEXT,
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
        _LATENT | _TEXT | {"added_cond_kwargs": {"text_embeds": noise(2, 16), "time_ids": below(64, 2, 6)}},
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
        _LATENT | _TEXT | {"class_labels": below(10, 2), "encoder_attention_mask": _MASK},
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
        _LATENT | _TEXT | {"encoder_attention_mask": _MASK},
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
        _LATENT | _TEXT | {"controlnet_cond": noise(2, 3, 16, 16)},
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
        _LATENT | _TEXT | {"controlnet_cond": noise(2, 3, 16, 16)},
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
    "T2IAdapter": Small(
        {"in_channels": 3, "channels": [8, 16], "num_res_blocks": 1, "downscale_factor": 4},
        {"x": noise(2, 3, 32, 32)},
    ),
    "T2IAdapter-light": Small(
        {
            "in_channels": 3,
            "channels": [8, 16],
            "num_res_blocks": 1,
            "downscale_factor": 4,
            "adapter_type": "light_adapter",
        },
        {"x": noise(2, 3, 32, 32)},
    ),
    "MultiAdapter": Small(
        {"adapters": lambda: [_adapter(), _adapter()]},
        {"xs": [noise(2, 3, 16, 16), noise(2, 3, 16, 16)], "adapter_weights": [0.7, 0.3]},
    ),
}

_AUTOENCODERS: Mapping[str, Small] = {
    "AutoencoderKL": Small(
        {
            "block_out_channels": (8, 16),
            "down_block_types": ("DownEncoderBlock2D",) * 2,
            "up_block_types": ("UpDecoderBlock2D",) * 2,
            "norm_num_groups": 4,
        },
        _IMAGE,
    ),
    "AutoencoderKL-sample": Small(
        {
            "block_out_channels": (8, 16),
            "down_block_types": ("DownEncoderBlock2D",) * 2,
            "up_block_types": ("UpDecoderBlock2D",) * 2,
            "norm_num_groups": 4,
        },
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
        {
            "block_out_channels": (8, 16),
            "down_block_types": ("DownEncoderBlock2D",) * 2,
            "up_block_types": ("UpDecoderBlock2D",) * 2,
            "norm_num_groups": 4,
            "num_vq_embeddings": 32,
        },
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
        {
            "latent_channels": 4,
            "attention_head_dim": 4,
            "encoder_block_types": ("ResBlock", "EfficientViTBlock"),
            "decoder_block_types": ("ResBlock", "EfficientViTBlock"),
            "encoder_block_out_channels": (8, 16),
            "decoder_block_out_channels": (8, 16),
            "encoder_layers_per_block": (1, 1),
            "decoder_layers_per_block": (1, 1),
            "encoder_qkv_multiscales": ((), (5,)),
            "decoder_qkv_multiscales": ((), (5,)),
        },
        _IMAGE,
    ),
    "AutoencoderDC-plain": Small(
        {
            "latent_channels": 4,
            "attention_head_dim": 4,
            "encoder_block_types": ("ResBlock", "EfficientViTBlock"),
            "decoder_block_types": ("ResBlock", "EfficientViTBlock"),
            "encoder_block_out_channels": (8, 8),
            "decoder_block_out_channels": (8, 8),
            "encoder_layers_per_block": (1, 1),
            "decoder_layers_per_block": (1, 1),
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

_TRANSFORMERS: Mapping[str, Small] = {
    "Transformer2DModel": Small(
        {
            "in_channels": 16,
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "norm_num_groups": 4,
            "cross_attention_dim": 16,
            "dropout": 0.1,
        },
        {"hidden_states": noise(2, 16, 8, 8), "encoder_attention_mask": _MASK} | _TEXT,
    ),
    "Transformer2DModel-vectors": Small(
        {
            "num_vector_embeds": 16,
            "sample_size": 4,
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "num_embeds_ada_norm": 100,
            "norm_type": "ada_norm",
            "activation_fn": "geglu-approximate",
        },
        {"hidden_states": below(16, 2, 16), "timestep": below(100)},
    ),
    "TransformerTemporalModel": Small(
        {"in_channels": 16, "num_attention_heads": 2, "attention_head_dim": 8, "norm_num_groups": 4},
        {"hidden_states": noise(6, 16, 4, 4), "num_frames": 3},
    ),
    "DiTTransformer2DModel": Small(
        {
            "in_channels": 4,
            "out_channels": 8,
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "num_layers": 2,
            "sample_size": 8,
            "num_embeds_ada_norm": 10,
        },
        {"hidden_states": noise(2, 4, 8, 8), "timestep": below(1000, 2), "class_labels": below(10, 2)},
    ),
    "PixArtTransformer2DModel": Small(
        {
            "num_attention_heads": 2,
            "attention_head_dim": 12,
            "num_layers": 2,
            "sample_size": 8,
            "cross_attention_dim": 24,
            "caption_channels": 16,
            "use_additional_conditions": True,
        },
        {
            "hidden_states": noise(2, 4, 8, 8),
            "timestep": below(1000, 2),
            "encoder_attention_mask": _MASK,
            "added_cond_kwargs": {"resolution": torch.full((2, 2), 64.0), "aspect_ratio": torch.ones(2, 1)},
        }
        | _TEXT,
    ),
    "SD3Transformer2DModel": Small(
        {
            "sample_size": 8,
            "in_channels": 4,
            "out_channels": 4,
            "num_layers": 2,
            "attention_head_dim": 8,
            "num_attention_heads": 2,
            "joint_attention_dim": 16,
            "caption_projection_dim": 16,
            "pooled_projection_dim": 16,
            "pos_embed_max_size": 8,
            "dual_attention_layers": (0,),
            "qk_norm": "rms_norm",
        },
        {
            "hidden_states": noise(2, 4, 8, 8),
            "pooled_projections": noise(2, 16),
            "timestep": below(1000, 2),
        }
        | _TEXT,
    ),
    "FluxTransformer2DModel": Small(
        {
            "in_channels": 4,
            "num_layers": 1,
            "num_single_layers": 1,
            "attention_head_dim": 16,
            "num_attention_heads": 2,
            "joint_attention_dim": 16,
            "pooled_projection_dim": 16,
            "guidance_embeds": True,
            "axes_dims_rope": (4, 4, 8),
        },
        {
            "hidden_states": noise(2, 16, 4),
            "pooled_projections": noise(2, 16),
            "timestep": below(1000, 2),
            "guidance": below(5, 2),
            "img_ids": below(4, 16, 3),
            "txt_ids": torch.zeros(6, 3),
        }
        | _TEXT,
    ),
    "Flux2Transformer2DModel": Small(
        {
            "in_channels": 4,
            "num_layers": 1,
            "num_single_layers": 1,
            "attention_head_dim": 16,
            "num_attention_heads": 2,
            "joint_attention_dim": 16,
            "timestep_guidance_channels": 16,
            "axes_dims_rope": (4, 4, 4, 4),
        },
        {
            "hidden_states": noise(2, 16, 4),
            "timestep": below(1000, 2),
            "guidance": below(5, 2),
            "img_ids": below(4, 16, 4),
            "txt_ids": below(4, 6, 4),
        }
        | _TEXT,
    ),
    "ChromaTransformer2DModel": Small(
        {
            "in_channels": 4,
            "num_layers": 1,
            "num_single_layers": 1,
            "attention_head_dim": 16,
            "num_attention_heads": 2,
            "joint_attention_dim": 16,
            "axes_dims_rope": (4, 4, 8),
            "approximator_num_channels": 8,
            "approximator_hidden_dim": 16,
            "approximator_layers": 1,
        },
        {
            "hidden_states": noise(2, 16, 4),
            "timestep": below(1000, 2),
            "img_ids": below(4, 16, 3),
            "txt_ids": torch.zeros(6, 3),
        }
        | _TEXT,
    ),
    "AuraFlowTransformer2DModel": Small(
        {
            "sample_size": 8,
            "num_mmdit_layers": 1,
            "num_single_dit_layers": 1,
            "attention_head_dim": 8,
            "num_attention_heads": 2,
            "joint_attention_dim": 16,
            "caption_projection_dim": 16,
            "pos_embed_max_size": 16,
        },
        {"hidden_states": noise(2, 4, 8, 8), "timestep": below(1000, 2)} | _TEXT,
    ),
    "CogVideoXTransformer3DModel": Small(
        {
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "in_channels": 4,
            "out_channels": 4,
            "time_embed_dim": 4,
            "text_embed_dim": 16,
            "num_layers": 2,
            "sample_width": 8,
            "sample_height": 8,
            "sample_frames": 8,
            "max_text_seq_length": 6,
        },
        {"hidden_states": noise(2, 2, 4, 8, 8), "timestep": below(1000, 2)} | _TEXT,
    ),
    "CogView4Transformer2DModel": Small(
        {
            "in_channels": 4,
            "out_channels": 4,
            "num_layers": 2,
            "attention_head_dim": 8,
            "num_attention_heads": 2,
            "text_embed_dim": 16,
            "time_embed_dim": 8,
            "condition_dim": 4,
            "sample_size": 8,
            "rope_axes_dim": (8, 8),
        },
        {
            "hidden_states": noise(2, 4, 8, 8),
            "timestep": below(1000, 2),
            "original_size": torch.full((2, 2), 20.0),
            "target_size": torch.full((2, 2), 16.0),
            "crop_coords": torch.zeros(2, 2),
        }
        | _TEXT,
    ),
    "HunyuanDiT2DModel": Small(
        {
            "sample_size": 8,
            "patch_size": 2,
            "in_channels": 4,
            "num_layers": 2,
            "attention_head_dim": 8,
            "num_attention_heads": 2,
            "hidden_size": 16,
            "cross_attention_dim": 16,
            "cross_attention_dim_t5": 16,
            "pooled_projection_dim": 16,
            "text_len": 6,
            "text_len_t5": 6,
        },
        {
            "hidden_states": noise(2, 4, 8, 8),
            "timestep": noise(2),
            "text_embedding_mask": _MASK,
            "encoder_hidden_states_t5": noise(2, 6, 16),
            "text_embedding_mask_t5": _MASK,
            "image_meta_size": below(64, 2, 6),
            "style": below(1, 2),
            "image_rotary_emb": [noise(16, 8), noise(16, 8)],
        }
        | _TEXT,
    ),
    "HunyuanVideoTransformer3DModel": Small(
        {
            "in_channels": 4,
            "out_channels": 4,
            "num_attention_heads": 2,
            "attention_head_dim": 10,
            "num_layers": 1,
            "num_single_layers": 1,
            "num_refiner_layers": 1,
            "text_embed_dim": 16,
            "pooled_projection_dim": 8,
            "rope_axes_dim": (2, 4, 4),
        },
        {
            "hidden_states": noise(2, 4, 2, 8, 8),
            "timestep": below(1000, 2),
            "encoder_attention_mask": _MASK,
            "pooled_projections": noise(2, 8),
            "guidance": below(1000, 2),
        }
        | _TEXT,
    ),
    "LTXVideoTransformer3DModel": Small(
        {
            "in_channels": 4,
            "out_channels": 4,
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "cross_attention_dim": 16,
            "num_layers": 1,
            "caption_channels": 16,
        },
        {
            "hidden_states": noise(2, 32, 4),
            "timestep": below(1000, 2),
            "encoder_attention_mask": _MASK,
            "num_frames": 2,
            "height": 4,
            "width": 4,
        }
        | _TEXT,
    ),
    "WanTransformer3DModel": Small(
        {
            "num_attention_heads": 2,
            "attention_head_dim": 12,
            "in_channels": 4,
            "out_channels": 4,
            "text_dim": 16,
            "freq_dim": 16,
            "ffn_dim": 32,
            "num_layers": 2,
            "rope_max_seq_len": 32,
        },
        {"hidden_states": noise(2, 4, 2, 8, 8), "timestep": below(1000, 2)} | _TEXT,
    ),
    "SanaTransformer2DModel": Small(
        {
            "in_channels": 4,
            "out_channels": 4,
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "num_layers": 2,
            "num_cross_attention_heads": 2,
            "cross_attention_head_dim": 8,
            "cross_attention_dim": 16,
            "caption_channels": 16,
            "sample_size": 8,
        },
        {"hidden_states": noise(2, 4, 8, 8), "timestep": below(1000, 2), "encoder_attention_mask": _MASK} | _TEXT,
    ),
    "Lumina2Transformer2DModel": Small(
        {
            "sample_size": 8,
            "in_channels": 4,
            "hidden_size": 24,
            "num_layers": 1,
            "num_refiner_layers": 1,
            "num_attention_heads": 3,
            "num_kv_heads": 1,
            "multiple_of": 2,
            "axes_dim_rope": (4, 2, 2),
            "axes_lens": (32, 32, 32),
            "cap_feat_dim": 16,
        },
        {
            "hidden_states": noise(2, 4, 8, 8),
            "timestep": lambda generator: torch.rand(2, generator=generator),
            "encoder_attention_mask": _MASK.bool(),
        }
        | _TEXT,
    ),
    "LuminaNextDiT2DModel": Small(
        {
            "sample_size": 8,
            "hidden_size": 24,
            "num_layers": 2,
            "num_attention_heads": 3,
            "num_kv_heads": 1,
            "multiple_of": 16,
            "cross_attention_dim": 16,
        },
        {
            "hidden_states": noise(2, 4, 8, 8),
            "timestep": lambda generator: torch.rand(2, generator=generator),
            "encoder_mask": _MASK,
            "cross_attention_kwargs": {},
            "image_rotary_emb": lambda generator: torch.view_as_complex(torch.randn(32, 32, 4, 2, generator=generator)),
        }
        | _TEXT,
    ),
    "MochiTransformer3DModel": Small(
        {
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "num_layers": 2,
            "pooled_projection_dim": 16,
            "in_channels": 4,
            "text_embed_dim": 16,
            "time_embed_dim": 4,
            "max_sequence_length": 6,
        },
        {
            "hidden_states": noise(2, 4, 2, 8, 8),
            "timestep": below(1000, 2),
            "encoder_attention_mask": _MASK.bool(),
        }
        | _TEXT,
    ),
    "Kandinsky5Transformer3DModel": Small(
        {
            "in_visual_dim": 4,
            "in_text_dim": 16,
            "in_text_dim2": 16,
            "time_dim": 8,
            "out_visual_dim": 4,
            "model_dim": 16,
            "ff_dim": 32,
            "num_text_blocks": 1,
            "num_visual_blocks": 1,
            "axes_dims": (2, 2, 4),
        },
        {
            "hidden_states": noise(1, 2, 8, 8, 4),
            "encoder_hidden_states": noise(1, 6, 16),
            "timestep": below(1000, 1),
            "pooled_projections": noise(1, 16),
            "visual_rope_pos": (torch.arange(2), torch.arange(4), torch.arange(4)),
            "text_rope_pos": torch.arange(6),
        },
    ),
    "PriorTransformer": Small(
        {
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "num_layers": 2,
            "embedding_dim": 16,
            "num_embeddings": 6,
        },
        {
            "hidden_states": noise(2, 16),
            "timestep": below(1000, 2),
            "proj_embedding": noise(2, 16),
            "attention_mask": _MASK.bool(),
        }
        | _TEXT,
    ),
    "LatteTransformer3DModel": Small(
        {
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "in_channels": 4,
            "out_channels": 8,
            "num_layers": 1,
            "cross_attention_dim": 16,
            "attention_bias": True,
            "sample_size": 8,
            "patch_size": 2,
            "activation_fn": "gelu-approximate",
            "num_embeds_ada_norm": 1000,
            "norm_type": "ada_norm_single",
            "norm_elementwise_affine": False,
            "caption_channels": 16,
            "video_length": 2,
        },
        {"hidden_states": noise(1, 4, 2, 8, 8), "timestep": below(1000, 1), "encoder_hidden_states": noise(1, 6, 16)},
    ),
    "StableAudioDiTModel": Small(
        {
            "sample_size": 8,
            "in_channels": 4,
            "num_layers": 2,
            "attention_head_dim": 8,
            "num_attention_heads": 2,
            "num_key_value_attention_heads": 1,
            "out_channels": 4,
            "cross_attention_dim": 8,
            "time_proj_dim": 8,
            "global_states_input_dim": 8,
            "cross_attention_input_dim": 8,
        },
        {
            "hidden_states": noise(2, 4, 8),
            "timestep": below(1000, 2),
            "encoder_hidden_states": noise(2, 6, 8),
            "global_hidden_states": noise(2, 1, 8),
            "rotary_embedding": [noise(9, 4), noise(9, 4)],
        },
    ),
    "QwenImageTransformer2DModel": Small(
        {
            "in_channels": 16,
            "out_channels": 4,
            "num_layers": 1,
            "attention_head_dim": 16,
            "num_attention_heads": 2,
            "joint_attention_dim": 16,
            "axes_dims_rope": (8, 4, 4),
        },
        {
            "hidden_states": noise(2, 16, 16),
            "encoder_hidden_states_mask": _MASK,
            "timestep": below(1000, 2),
            "img_shapes": [(1, 4, 4), (1, 4, 4)],
        }
        | _TEXT,
    ),
    "CosmosTransformer3DModel": Small(
        {
            "in_channels": 4,
            "out_channels": 4,
            "num_attention_heads": 2,
            "attention_head_dim": 12,
            "num_layers": 2,
            "text_embed_dim": 16,
            "adaln_lora_dim": 4,
            "max_size": (4, 16, 16),
            "concat_padding_mask": False,
        },
        {
            "hidden_states": noise(1, 4, 2, 8, 8),
            "timestep": below(1000, 1),
            "encoder_hidden_states": noise(1, 6, 16),
            "fps": 30,
        },
    ),
    "EasyAnimateTransformer3DModel": Small(
        {
            "num_attention_heads": 2,
            "attention_head_dim": 16,
            "in_channels": 4,
            "out_channels": 4,
            "patch_size": 2,
            "time_embed_dim": 4,
            "num_layers": 2,
            "mmdit_layers": 1,
            "text_embed_dim": 16,
            "sample_width": 8,
            "sample_height": 8,
        },
        {"hidden_states": noise(2, 4, 2, 8, 8), "timestep": below(1000, 2)} | _TEXT,
    ),
    "HiDreamImageTransformer2DModel": Small(
        {
            "patch_size": 2,
            "in_channels": 4,
            "num_layers": 1,
            "num_single_layers": 1,
            "attention_head_dim": 8,
            "num_attention_heads": 2,
            "caption_channels": [16, 16],
            "text_emb_dim": 16,
            "axes_dims_rope": (4, 2, 2),
            "max_resolution": (8, 8),
            "llama_layers": [0, 1],
        },
        {
            "hidden_states": noise(2, 4, 8, 8),
            "timesteps": below(1000, 2),
            "encoder_hidden_states_t5": noise(2, 6, 16),
            "encoder_hidden_states_llama3": noise(2, 2, 6, 16),
            "pooled_embeds": noise(2, 16),
        },
    ),
    "PRXTransformer2DModel": Small(
        {
            "in_channels": 4,
            "context_in_dim": 16,
            "hidden_size": 16,
            "mlp_ratio": 2.0,
            "num_heads": 2,
            "depth": 2,
            "axes_dim": [4, 4],
        },
        {"hidden_states": noise(2, 4, 8, 8), "timestep": below(1000, 2), "attention_mask": _MASK.bool()} | _TEXT,
    ),
    "ZImageTransformer2DModel": Small(
        {
            "in_channels": 4,
            "dim": 32,
            "n_layers": 1,
            "n_refiner_layers": 1,
            "n_heads": 2,
            "n_kv_heads": 2,
            "cap_feat_dim": 16,
            "axes_dims": [8, 4, 4],
            "axes_lens": [64, 32, 32],
        },
        {
            "x": [noise(4, 1, 8, 8), noise(4, 1, 8, 8)],
            "t": lambda generator: torch.rand(2, generator=generator),
            "cap_feats": [noise(6, 16), noise(4, 16)],
        },
    ),
    "NucleusMoEImageTransformer2DModel": Small(
        {
            "in_channels": 16,
            "out_channels": 4,
            "num_layers": 2,
            "attention_head_dim": 16,
            "num_attention_heads": 2,
            "joint_attention_dim": 16,
            "axes_dims_rope": (8, 4, 4),
            "dense_moe_strategy": "leave_first_three_blocks_dense",
            "num_experts": 4,
            "moe_intermediate_dim": 16,
            "capacity_factors": 2.0,
        },
        {
            "hidden_states": noise(2, 16, 16),
            "img_shapes": [(1, 4, 4), (1, 4, 4)],
            "encoder_hidden_states_mask": _MASK,
            "timestep": below(1000, 2),
        }
        | _TEXT,
    ),
}

KINDS: Mapping[str, Small] = _UNETS | _AUTOENCODERS | _TRANSFORMERS
"""By name, what a small member is built with and called with."""
