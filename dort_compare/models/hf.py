"""The three parts of a Llama as transformers has them, called as those of `dort_compare.models.llama` are.

Each class keeps the module of transformers in ``hf``, whose state dict has the keys of the plain torch part.
Making one raises UsageError where transformers is not installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import nn

from dort_compare.errors import UsageError
from dort_compare.models.llama import LlamaConfig, attention_mask


class _Layer(nn.Module):
    """A module of transformers that ``LlamaModel`` calls with positions and a mask, which are made here instead."""

    def __init__(self, config: LlamaConfig, name: str) -> None:
        super().__init__()
        modeling, hf_config = _transformers(config)
        self.hf = getattr(modeling, name)(hf_config, layer_idx=0)
        self.rotary_emb = modeling.LlamaRotaryEmbedding(hf_config)
        self.attention = config.attention

    def _call(self, hidden: torch.Tensor) -> Any:
        positions = torch.arange(hidden.shape[1], device=hidden.device)[None]
        return self.hf(
            hidden,
            position_embeddings=self.rotary_emb(hidden, positions),
            attention_mask=attention_mask(hidden, None, self.attention),
        )


class Attention(_Layer):
    """``LlamaAttention``: float (batch, seq, hidden) to the same shape."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config, "LlamaAttention")

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        output, _ = self._call(hidden)
        return output


class Decoder(_Layer):
    """``LlamaDecoderLayer``: float (batch, seq, hidden) to the same shape."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config, "LlamaDecoderLayer")

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._call(hidden)


class Model(nn.Module):
    """``LlamaModel`` without a cache: int64 tokens (batch, seq) and mask (1 for real) to (batch, seq, hidden)."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        modeling, hf_config = _transformers(config)
        self.hf = modeling.LlamaModel(hf_config)

    def forward(self, tokens: torch.Tensor, padding: torch.Tensor | None = None) -> torch.Tensor:
        return self.hf(input_ids=tokens, attention_mask=padding, use_cache=False).last_hidden_state


def _transformers(config: LlamaConfig) -> tuple[Any, Any]:
    """The module of transformers that holds Llama, and ``config`` in its words."""
    try:
        modeling = import_module("transformers.models.llama.modeling_llama")
    except ModuleNotFoundError as error:
        raise UsageError("--source hf needs transformers: pip install 'dort-compare[hf]'") from error
    hf_config = modeling.LlamaConfig(
        hidden_size=config.hidden,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        intermediate_size=config.intermediate,
        vocab_size=config.vocabulary,
        num_hidden_layers=config.layers,
        rms_norm_eps=config.eps,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
        bos_token_id=None,
        eos_token_id=None,
        attn_implementation=config.attention,
    )
    return modeling, hf_config
