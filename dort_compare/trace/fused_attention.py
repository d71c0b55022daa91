"""CUDA's fused attention in plain operations, for dtypes that its kernels lack: the referee's float64 above all.

Shapes, masks and the rows that see no key are those of ``lowering/ops/attention_cuda.py``. cuDNN's kernel takes float64
without a word, and reads it as what it is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

_ALIGNMENT = 32
"""The memory-efficient kernel rounds the last size of its logsumexp up to a multiple of this."""


def _flash(
    query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, is_causal: bool = False,
    return_debug_mask: bool = False, *, scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    _refuse(dropout_p, return_debug_mask)
    scores = _scores(query, key, None, is_causal, scale, bottom_right=True)
    output, logsumexp = _attended(scores, value, empty_row=math.inf)
    state = query.new_zeros((), dtype=torch.int64)
    return output, logsumexp, None, None, query.shape[2], key.shape[2], state, state, query.new_zeros(0)


def _efficient(
    query: Tensor, key: Tensor, value: Tensor, attn_bias: Tensor | None, compute_log_sumexp: bool,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    _refuse(dropout_p)
    output, logsumexp = _attended(_scores(query, key, attn_bias, is_causal, scale), value, empty_row=-math.inf)
    missing = -query.shape[2] % _ALIGNMENT
    aligned = torch.constant_pad_nd(logsumexp, (0, missing), math.inf) if compute_log_sumexp else logsumexp[..., :0]
    state = query.new_zeros((), dtype=torch.int64)
    return output, aligned, state, state


def _cudnn(
    query: Tensor, key: Tensor, value: Tensor, attn_bias: Tensor | None, compute_log_sumexp: bool,
    dropout_p: float = 0.0, is_causal: bool = False, return_debug_mask: bool = False, *, scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    _refuse(dropout_p, return_debug_mask)
    output, logsumexp = _attended(_scores(query, key, attn_bias, is_causal, scale), value, empty_row=-math.inf)
    state = query.new_zeros((), dtype=torch.int64)
    return output, logsumexp.unsqueeze(-1), None, None, query.shape[2], key.shape[2], state, state, None


def _flash_backward(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor, cum_seq_q: Any,
    cum_seq_k: Any, max_q: int, max_k: int, dropout_p: float, is_causal: bool, philox_seed: Any, philox_offset: Any, *,
    scale: float | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    _refuse(dropout_p)
    scores = _scores(query, key, None, is_causal, scale, bottom_right=True)
    return _gradients(scores, grad_out, query, key, value, out, logsumexp, scale)[:3]


def _efficient_backward(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, attn_bias: Tensor | None, out: Tensor,
    logsumexp: Tensor, philox_seed: Any, philox_offset: Any, dropout_p: float, grad_input_mask: list[bool],
    is_causal: bool = False, *, scale: float | None = None,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    _refuse(dropout_p)
    scores = _scores(query, key, attn_bias, is_causal, scale)
    unpadded = logsumexp[..., : query.shape[2]]
    *gradients, grad_scores = _gradients(scores, grad_out, query, key, value, out, unpadded, scale)
    return *gradients, None if attn_bias is None else grad_scores.sum_to_size(attn_bias.shape)


def _cudnn_backward(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor, philox_seed: Any,
    philox_offset: Any, attn_bias: Tensor | None, cum_seq_q: Any, cum_seq_k: Any, max_q: int, max_k: int,
    dropout_p: float, is_causal: bool, *, scale: float | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    _refuse(dropout_p)
    scores = _scores(query, key, attn_bias, is_causal, scale)
    return _gradients(scores, grad_out, query, key, value, out, logsumexp.squeeze(-1), scale)[:3]


PLAIN: Mapping[Any, Callable[..., tuple[Any, ...]]] = MappingProxyType(
    {
        aten._scaled_dot_product_flash_attention.default: _flash,
        aten._scaled_dot_product_flash_attention_backward.default: _flash_backward,
        aten._scaled_dot_product_efficient_attention.default: _efficient,
        aten._scaled_dot_product_efficient_attention_backward.default: _efficient_backward,
        aten._scaled_dot_product_cudnn_attention.default: _cudnn,
        aten._scaled_dot_product_cudnn_attention_backward.default: _cudnn_backward,
    }
)
"""By operator, a function of the same arguments and results; the state of random numbers, which nobody reads without
dropout, is 0. They raise NotImplementedError for dropout and debug masks."""


# The arithmetic.


def _refuse(dropout_p: float, return_debug_mask: bool = False) -> None:
    if dropout_p or return_debug_mask:
        raise NotImplementedError("attention that drops out, or returns its mask, runs in torch's kernel alone")


def _scale(query: Tensor, scale: float | None) -> float:
    return 1 / math.sqrt(query.shape[3]) if scale is None else scale


def _repeated(x: Tensor, heads: int) -> Tensor:
    """(B, K, S, E) to (B, H, S, E): every head of keys serves a group of heads of queries."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], 1)


def _summed(grad: Tensor, x: Tensor) -> Tensor:
    """The gradient of ``_repeated(x)``."""
    return grad if grad.shape[1] == x.shape[1] else grad.unflatten(1, (x.shape[1], -1)).sum(2)


def _scores(
    query: Tensor, key: Tensor, bias: Tensor | None, is_causal: bool, scale: float | None, bottom_right: bool = False
) -> Tensor:
    """(B, H, L, S), -inf where a query does not see a key."""
    scores = query @ _repeated(key, query.shape[1]).mT * _scale(query, scale)
    if bias is not None:
        scores = scores + bias
    if not is_causal:
        return scores
    length, keys = scores.shape[-2:]
    seen = torch.ones(length, keys, dtype=torch.bool, device=query.device).tril(keys - length if bottom_right else 0)
    return scores.masked_fill(~seen, -math.inf)


def _attended(scores: Tensor, value: Tensor, empty_row: float) -> tuple[Tensor, Tensor]:
    """Output (B, H, L, V), 0 in a row that sees no key, and logsumexp (B, H, L), ``empty_row`` there."""
    empty = (scores == -math.inf).all(-1, keepdim=True)
    seen = scores.masked_fill(empty, 0)
    output = seen.softmax(-1).masked_fill(empty, 0) @ _repeated(value, scores.shape[1])
    return output, seen.logsumexp(-1).masked_fill(empty.squeeze(-1), empty_row)


def _gradients(
    scores: Tensor, grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor,
    scale: float | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Of query, key, value and scores (Dao et al., FlashAttention, 2022, appendix B.2)."""
    column = logsumexp.unsqueeze(-1)
    probabilities = (scores - column.masked_fill(column == -math.inf, 0)).exp()
    grad_probabilities = grad_out @ _repeated(value, query.shape[1]).mT
    grad_scores = probabilities * (grad_probabilities - (grad_out * out).sum(-1, keepdim=True))
    scaled = grad_scores * _scale(query, scale)
    return (
        scaled @ _repeated(key, query.shape[1]),
        _summed(scaled.mT @ query, key),
        _summed(probabilities.mT @ grad_out, value),
        grad_scores,
    )
