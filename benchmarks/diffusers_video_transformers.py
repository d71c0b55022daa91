"""Small transformers of diffusers, of videos."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from diffusers_small import MASK, TEXT, Small, below, noise

VIDEO_TRANSFORMERS: Mapping[str, Small] = {
    "TransformerTemporalModel": Small(
        {"in_channels": 16, "num_attention_heads": 2, "attention_head_dim": 8, "norm_num_groups": 4},
        {"hidden_states": noise(6, 16, 4, 4), "num_frames": 3},
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
        {"hidden_states": noise(2, 2, 4, 8, 8), "timestep": below(1000, 2)} | TEXT,
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
            "encoder_attention_mask": MASK,
            "pooled_projections": noise(2, 8),
            "guidance": below(1000, 2),
        }
        | TEXT,
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
            "encoder_attention_mask": MASK,
            "num_frames": 2,
            "height": 4,
            "width": 4,
        }
        | TEXT,
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
        {"hidden_states": noise(2, 4, 2, 8, 8), "timestep": below(1000, 2)} | TEXT,
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
            "encoder_attention_mask": MASK.bool(),
        }
        | TEXT,
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
        {"hidden_states": noise(2, 4, 2, 8, 8), "timestep": below(1000, 2)} | TEXT,
    ),
}
