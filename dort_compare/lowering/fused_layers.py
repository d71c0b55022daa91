"""torch's fused layers of transformers, which it does not decompose, in the ATen ops that they fuse.

``nn.TransformerEncoderLayer`` calls one where nobody asks for a gradient. The formulas and the order of the roundings
are those of torch's ``aten/src/ATen/native/transformers``. What the kernels refuse stays whole, for them to say why.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

aten = torch.ops.aten


def decompositions() -> dict[torch._ops.OperatorBase, Callable[..., Any]]:
    """The table for AOTAutograd; a function in it returns NotImplemented for what stays whole."""
    return {
        aten._transformer_encoder_layer_fwd.default: _encoder_layer,
        aten._native_multi_head_attention.default: _multi_head_attention,
    }


def _encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    if not _is_taken(src, num_heads, mask, mask_type):
        return NotImplemented
    norm_1, norm_2 = (
        functools.partial(F.layer_norm, normalized_shape=[embed_dim], weight=weight, bias=bias, eps=eps)
        for weight, bias in ((norm_weight_1, norm_bias_1), (norm_weight_2, norm_bias_2))
    )
    qkv = F.linear(norm_1(src) if norm_first else src, qkv_weight)
    attended = src + F.linear(_attention(qkv, qkv_bias, num_heads, _hidden(mask, mask_type))[0], proj_weight, proj_bias)
    middle = attended if norm_first else norm_1(attended)
    rows = (norm_2(middle) if norm_first else middle).flatten(0, 1)
    activated = aten._addmm_activation(ffn_bias_1, rows, ffn_weight_1.t(), use_gelu=use_gelu)
    result = middle + F.linear(activated, ffn_weight_2, ffn_bias_2).view_as(middle)
    return result if norm_first else norm_2(result)


def _multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    to_itself = query is key and key is value and query.shape[-1] == embed_dim
    if not to_itself or not _is_taken(query, num_head, mask, mask_type):
        return NotImplemented
    attended, weights = _attention(F.linear(query, qkv_weight), qkv_bias, num_head, _hidden(mask, mask_type))
    result = F.linear(attended, proj_weight, proj_bias)
    if not need_weights:
        return result, None
    return result, weights.mean(1) if average_attn_weights else weights


def _attention(qkv: Tensor, bias: Tensor, heads: int, hidden: Tensor | None) -> tuple[Tensor, Tensor]:
    """From the projected queries, keys and values (B, L, 3 E) to the heads' results (B, L, E) and weights (B, H, L, L).

    A row that sees nothing is NaN.
    """
    queries, keys, values = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (qkv + bias).chunk(3, -1))
    scores = queries * (1 / math.sqrt(queries.shape[-1])) @ keys.transpose(2, 3)
    if hidden is not None:
        scores = scores.masked_fill(hidden, -math.inf)
    weights = scores.softmax(-1)
    return (weights @ values).transpose(1, 2).flatten(2), weights


def _is_taken(x: Tensor, heads: int, mask: Tensor | None, mask_type: int | None) -> bool:
    """Whether the kernels take the mask for ``x`` (B, L, E): (B, H, L, L), or by its type (L, L) or (B, L)."""
    if mask is None:
        return True
    batch, length, _ = x.shape
    flat = {0: (length, length), 1: (batch, length)}
    return mask.shape == (batch, heads, length, length) or (mask_type in flat and mask.shape == flat[mask_type])


def _hidden(mask: Tensor | None, mask_type: int | None) -> Tensor | None:
    """Where scores (B, H, L, L) are hidden, broadcastable to them: wherever a mask of any dtype is not 0."""
    if mask is None:
        return None
    return (mask[:, None, None] if mask.dim() == 2 and mask_type == 1 else mask).to(torch.bool)
