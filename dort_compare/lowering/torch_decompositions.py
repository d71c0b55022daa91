"""Rewrites, in ATen ops, of what PyTorch's own ONNX exporter refuses, leaves out or converts to something wrong."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import get_decompositions

from dort_compare.dtypes import is_half_tensor
from dort_compare.layouts import inverse

aten = torch.ops.aten

_KEPT_BY_EXPORT = (aten.silu_backward, aten.mish_backward, aten._fused_rms_norm)
"""``run_decompositions`` keeps them for backends that know them; torchlib does not."""

_ARRIVING_AT_INDEX_PUT = (aten.col2im, aten.index_add, aten.unfold_backward)
"""Their decompositions accumulate with index_put, and so must run before ours of index_put."""

_LOSING_THE_TOTAL_WEIGHT = (aten.nll_loss_forward, aten.nll_loss2d_forward)
"""torchlib returns a constant for the sum of the weights, by which the backward graph divides."""


def decompositions() -> dict[Any, Callable[..., Any]]:
    """The table for ``make_fx``; a function in it returns NotImplemented for what can stay as it is."""
    torchs_own = (*_KEPT_BY_EXPORT, *_ARRIVING_AT_INDEX_PUT, *_LOSING_THE_TOTAL_WEIGHT)
    ours: dict[Any, Callable[..., Any]] = {
        aten.split.Tensor: _split,
        aten.split_with_sizes.default: _split_with_sizes,
        aten.unbind.int: _unbind,
        aten.embedding_dense_backward.default: _embedding_dense_backward,
        aten.index_put.default: _index_put,
        aten._unsafe_index_put.default: _index_put,
        aten._scaled_dot_product_flash_attention_for_cpu.default: _flash_attention,
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _flash_attention_backward,
        aten._scaled_dot_product_flash_attention.default: _refuse_logsumexp,
        aten._scaled_dot_product_efficient_attention.default: _refuse_logsumexp,
    }
    return {**get_decompositions(torchs_own), **ours}


# torchlib makes ONNX sequences of these, of which neither dtype and shape nor the FX nodes of the elements can be told.
# torch's own decompositions make ``as_strided`` of them, for which torchlib takes every input to be contiguous.


def _split(x: Tensor, split_size: int, dim: int = 0) -> list[Tensor]:
    starts = range(0, x.shape[dim], split_size) if split_size else range(1)
    return [aten.slice.Tensor(x, dim, start, min(start + split_size, x.shape[dim])) for start in starts]


def _split_with_sizes(x: Tensor, split_sizes: Sequence[int], dim: int = 0) -> list[Tensor]:
    ends = list(itertools.accumulate(split_sizes))
    return [aten.slice.Tensor(x, dim, end - size, end) for size, end in zip(split_sizes, ends, strict=True)]


def _unbind(x: Tensor, dim: int = 0) -> list[Tensor]:
    return [aten.select.int(x, dim, i) for i in range(x.shape[dim])]


# A sum over indices that repeat becomes ScatterND(reduction="add") in torchlib, a data race in ONNX Runtime's CPU
# provider. ``scatter_add`` becomes ScatterElements.


def _embedding_dense_backward(
    grad: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Tensor:
    """Sums the rows of ``grad`` (indices.shape + [width]) that belong to one row of the weight, in float32 or wider."""
    if scale_grad_by_freq:
        return NotImplemented
    width = grad.shape[-1]
    rows = _wide(grad).masked_fill((indices == padding_idx).unsqueeze(-1), 0).reshape(-1, width)
    index = indices.reshape(-1, 1).expand(-1, width)
    return rows.new_zeros(num_weights, width).scatter_add(0, index, rows).to(grad.dtype)


def _index_put(data: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """Adds at the flat positions that indexing with ``indices`` picks. A mask picks no element twice and may stay."""
    if not accumulate or any(index is not None and index.dtype == torch.bool for index in indices):
        return NotImplemented
    positions = torch.arange(data.numel(), device=data.device).view(data.shape)
    picked = aten.index.Tensor(positions, [index if index is None else index.long() for index in indices])
    added = _wide(values.expand(picked.shape)).reshape(-1)
    total = _wide(data).reshape(-1).scatter_add(0, picked.reshape(-1), added)
    return total.view(data.shape).to(data.dtype)


# Attention: torchlib returns an empty logsumexp, which the backward graph reads; the backward op has no decomposition.


def _refuse_logsumexp(*args: Any, **kwargs: Any) -> Any:
    """CUDA's kernels, of which only the CPU's counterpart is rewritten here."""
    raise NotImplementedError("torchlib returns an empty logsumexp for it")


def _flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Query [B, H, L, E], key and value [B, K, S, E], K a divisor of H -> output as query, float32 logsumexp [B, H, L].

    A row that is masked altogether has output and logsumexp 0, as in torch's kernel.
    """
    groups = query.shape[1] // key.shape[1]
    scores = _scores(query, _repeat(key, groups), is_causal, attn_mask, scale)
    logsumexp = scores.logsumexp(-1)
    logsumexp = logsumexp.masked_fill(logsumexp == -math.inf, 0)
    output = (scores - logsumexp.unsqueeze(-1)).exp() @ _repeat(value, groups)
    order = torch._prims_common.compute_elementwise_output_logical_to_physical_perm(query)[0]
    output = output.to(query.dtype).permute(order).contiguous().permute(inverse(order))
    return output, logsumexp.transpose(1, 2).contiguous().transpose(1, 2)


def _flash_attention_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value, computed in float32 or wider: shapes as in ``_flash_attention``."""
    groups = query.shape[1] // key.shape[1]
    keys, values, grad = _repeat(key, groups), _repeat(value, groups), _wide(grad)
    attention = (_scores(query, keys, is_causal, attn_mask, scale) - logsumexp.unsqueeze(-1)).exp()
    row_sums = (grad * _wide(output)).sum(-1, keepdim=True)
    grad_scores = attention * (grad @ values.transpose(-2, -1) - row_sums) * _scale(query, scale)
    grad_key = _sum_groups(grad_scores.transpose(-2, -1) @ _wide(query), groups)
    grad_value = _sum_groups(attention.transpose(-2, -1) @ grad, groups)
    grads = (grad_scores @ keys, grad_key, grad_value)
    query_grad, key_grad, value_grad = (g.to(query.dtype).transpose(1, 2).contiguous().transpose(1, 2) for g in grads)
    return query_grad, key_grad, value_grad


def _scores(query: Tensor, keys: Tensor, is_causal: bool, attn_mask: Tensor | None, scale: float | None) -> Tensor:
    scores = _wide(query) @ keys.transpose(-2, -1) * _scale(query, scale)
    if attn_mask is not None:
        scores = scores + attn_mask
    if is_causal:
        rows = torch.arange(scores.shape[-2], device=scores.device).unsqueeze(-1)
        columns = torch.arange(scores.shape[-1], device=scores.device)
        scores = scores.masked_fill(columns > rows, -math.inf)
    return scores


def _scale(query: Tensor, scale: float | None) -> float:
    return 1 / math.sqrt(query.shape[-1]) if scale is None else scale


def _repeat(heads: Tensor, groups: int) -> Tensor:
    """[B, K, S, E] -> float32 or wider [B, K * groups, S, E], each head ``groups`` times in a row."""
    heads = _wide(heads)
    if groups == 1:
        return heads
    batch, count, length, width = heads.shape
    expanded = heads.unsqueeze(2).expand(batch, count, groups, length, width)
    return expanded.reshape(batch, count * groups, length, width)


def _sum_groups(heads: Tensor, groups: int) -> Tensor:
    """The transpose of ``_repeat``."""
    return heads if groups == 1 else heads.unflatten(1, (-1, groups)).sum(2)


def _wide(tensor: Tensor) -> Tensor:
    """Half precision as float32: sums are kept there, and ONNX Runtime's CPU provider has no half ScatterElements."""
    return tensor.float() if is_half_tensor(tensor) else tensor
