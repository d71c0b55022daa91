"""Small transformers of diffusers, of images and sound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from diffusers_small import MASK, TEXT, Small, below, noise

_FLUX: Mapping[str, Any] = {
    "in_channels": 4,
    "num_layers": 1,
    "num_single_layers": 1,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "joint_attention_dim": 16,
}

TRANSFORMERS: Mapping[str, Small] = {
    "Transformer2DModel": Small(
        {
            "in_channels": 16,
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "norm_num_groups": 4,
            "cross_attention_dim": 16,
            "dropout": 0.1,
        },
        {"hidden_states": noise(2, 16, 8, 8), "encoder_attention_mask": MASK} | TEXT,
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
            "encoder_attention_mask": MASK,
            "added_cond_kwargs": {"resolution": torch.full((2, 2), 64.0), "aspect_ratio": torch.ones(2, 1)},
        }
        | TEXT,
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
        | TEXT,
    ),
    "FluxTransformer2DModel": Small(
        _FLUX
        | {
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
        | TEXT,
    ),
    "Flux2Transformer2DModel": Small(
        _FLUX
        | {
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
        | TEXT,
    ),
    "ChromaTransformer2DModel": Small(
        _FLUX
        | {
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
        | TEXT,
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
        {"hidden_states": noise(2, 4, 8, 8), "timestep": below(1000, 2)} | TEXT,
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
        | TEXT,
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
            "text_embedding_mask": MASK,
            "encoder_hidden_states_t5": noise(2, 6, 16),
            "text_embedding_mask_t5": MASK,
            "image_meta_size": below(64, 2, 6),
            "style": below(1, 2),
            "image_rotary_emb": [noise(16, 8), noise(16, 8)],
        }
        | TEXT,
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
        {"hidden_states": noise(2, 4, 8, 8), "timestep": below(1000, 2), "encoder_attention_mask": MASK} | TEXT,
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
            "encoder_attention_mask": MASK.bool(),
        }
        | TEXT,
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
            "encoder_mask": MASK,
            "cross_attention_kwargs": {},
            "image_rotary_emb": lambda generator: torch.view_as_complex(torch.randn(32, 32, 4, 2, generator=generator)),
        }
        | TEXT,
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
            "attention_mask": MASK.bool(),
        }
        | TEXT,
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
            "encoder_hidden_states_mask": MASK,
            "timestep": below(1000, 2),
            "img_shapes": [(1, 4, 4), (1, 4, 4)],
        }
        | TEXT,
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
        {"hidden_states": noise(2, 4, 8, 8), "timestep": below(1000, 2), "attention_mask": MASK.bool()} | TEXT,
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
            "encoder_hidden_states_mask": MASK,
            "timestep": below(1000, 2),
        }
        | TEXT,
    ),
}
