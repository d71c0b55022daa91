"""Scaled dot product attention as torch's three CUDA kernels split it: flash, memory-efficient and cuDNN's.

Their forward ops also return what only the launch of their backward kernels needs. The arithmetic, in ``attention``,
does without; such a result is zeros marked as opaque, or None where torch has none.

All three take softmax's natural logarithm. Causal masks start in the top left corner, save flash's, which ends in the
bottom right one; ``F.scaled_dot_product_attention`` gives flash square causal scores only, but
``torch.nn.attention.bias.causal_lower_right`` relies on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.attention import Attention, Kernel
from dort_compare.lowering.precision import in_float32
from dort_compare.lowering.registry import lowering

aten = torch.ops.aten

FLASH = Kernel(empty_row=math.inf, bottom_right=True)
EFFICIENT = Kernel(empty_row=-math.inf)
CUDNN = Kernel(empty_row=-math.inf)

_RANDOM = "state of torch's random number generator, which attention without dropout never reads"
_DEBUG = "the debug mask of torch's kernel, empty unless asked for"

_ALIGNMENT = 32
"""The memory-efficient kernel rounds the last size of its logsumexp up to a multiple of this."""


@lowering(aten._scaled_dot_product_flash_attention.default)
def flash(
    op: Builder,
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    scale: float | None = None,
) -> tuple[ir.Value | None, ...]:
    """_scaled_dot_product_flash_attention(Tensor query, Tensor key, Tensor value, float dropout_p=0.0,
    bool is_causal=False, bool return_debug_mask=False, *, float? scale=None) -> (Tensor output, Tensor logsumexp,
    Tensor cum_seq_q, Tensor cum_seq_k, SymInt max_q, SymInt max_k, Tensor rng_state, Tensor unused,
    Tensor debug_attn_mask)"""
    _refuse_debug_mask(op, return_debug_mask)
    attention = Attention(op, FLASH, query, key, value, dropout_p, is_causal, None, scale)
    output, logsumexp = attention.forward()
    launch = (None, None, _length(op, 4, query), _length(op, 5, key), op.opaque(6, _RANDOM), op.opaque(7, _RANDOM))
    return op.cast(output, op.result_dtype), logsumexp, *launch, op.opaque(8, _DEBUG)


@lowering(aten._scaled_dot_product_flash_attention_backward.default)
@in_float32
def flash_backward(
    op: Builder,
    grad_out: ir.Value,
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    out: ir.Value,
    logsumexp: ir.Value,
    cum_seq_q: ir.Value | None,
    cum_seq_k: ir.Value | None,
    max_q: ir.Value | int,
    max_k: ir.Value | int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: ir.Value,
    philox_offset: ir.Value,
    scale: float | None = None,
) -> tuple[ir.Value | None, ...]:
    """_scaled_dot_product_flash_attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out,
    Tensor logsumexp, Tensor cum_seq_q, Tensor cum_seq_k, SymInt max_q, SymInt max_k, float dropout_p, bool is_causal,
    Tensor philox_seed, Tensor philox_offset, *, float? scale=None)
    -> (Tensor grad_query, Tensor grad_key, Tensor grad_value)"""
    attention = Attention(op, FLASH, query, key, value, dropout_p, is_causal, None, scale)
    return attention.backward(grad_out, out, logsumexp)[:3]


@lowering(aten._scaled_dot_product_efficient_attention.default)
@in_float32
def efficient(
    op: Builder,
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    attn_bias: ir.Value | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> tuple[ir.Value | None, ...]:
    """_scaled_dot_product_efficient_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_bias,
    bool compute_log_sumexp, float dropout_p=0.0, bool is_causal=False, *, float? scale=None)
    -> (Tensor output, Tensor log_sumexp, Tensor philox_seed, Tensor philox_offset)

    The logsumexp is (B, H, L rounded up to a multiple of 32), filled up with inf, or (B, H, 0) where none is asked for.
    """
    attention = Attention(op, EFFICIENT, query, key, value, dropout_p, is_causal, attn_bias, scale)
    output, logsumexp = attention.forward()
    if logsumexp is not None:
        logsumexp = _aligned(op, logsumexp, query) if compute_log_sumexp else op.Slice(logsumexp, [0], [0], [2])
    return output, logsumexp, op.opaque(2, _RANDOM), op.opaque(3, _RANDOM)


@lowering(aten._scaled_dot_product_efficient_attention_backward.default)
@in_float32
def efficient_backward(
    op: Builder,
    grad_out_: ir.Value,
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    attn_bias: ir.Value | None,
    out: ir.Value,
    logsumexp: ir.Value,
    philox_seed: ir.Value,
    philox_offset: ir.Value,
    dropout_p: float,
    grad_input_mask: Sequence[bool],
    is_causal: bool = False,
    scale: float | None = None,
) -> tuple[ir.Value | None, ...]:
    """_scaled_dot_product_efficient_attention_backward(Tensor grad_out_, Tensor query, Tensor key, Tensor value,
    Tensor attn_bias, Tensor out, Tensor logsumexp, Tensor philox_seed, Tensor philox_offset, float dropout_p,
    bool[4] grad_input_mask, bool is_causal=False, *, float? scale=None) -> (Tensor, Tensor, Tensor, Tensor)

    A graph reads no gradient that ``grad_input_mask`` leaves out.
    """
    attention = Attention(op, EFFICIENT, query, key, value, dropout_p, is_causal, attn_bias, scale)
    unpadded = op.Slice(logsumexp, [0], op.dims([op.size(query, 2)]), [2])
    return attention.backward(grad_out_, out, unpadded)


@lowering(aten._scaled_dot_product_cudnn_attention.default)
def cudnn(
    op: Builder,
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    attn_bias: ir.Value | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    scale: float | None = None,
) -> tuple[ir.Value | None, ...]:
    """_scaled_dot_product_cudnn_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_bias,
    bool compute_log_sumexp, float dropout_p=0.0, bool is_causal=False, bool return_debug_mask=False, *,
    float? scale=None) -> (Tensor output, Tensor logsumexp, Tensor cum_seq_q, Tensor cum_seq_k, SymInt max_q,
    SymInt max_k, Tensor philox_seed, Tensor philox_offset, Tensor debug_attn_mask)

    The logsumexp is (B, H, L, 1).
    """
    _refuse_debug_mask(op, return_debug_mask)
    attention = Attention(op, CUDNN, query, key, value, dropout_p, is_causal, attn_bias, scale)
    output, logsumexp = attention.forward()
    if logsumexp is not None:
        logsumexp = op.Unsqueeze(logsumexp, [-1])
    launch = (None, None, _length(op, 4, query), _length(op, 5, key), op.opaque(6, _RANDOM), op.opaque(7, _RANDOM))
    return op.cast(output, op.result_dtype), logsumexp, *launch, None


@lowering(aten._scaled_dot_product_cudnn_attention_backward.default)
@in_float32
def cudnn_backward(
    op: Builder,
    grad_out: ir.Value,
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    out: ir.Value,
    logsumexp: ir.Value,
    philox_seed: ir.Value,
    philox_offset: ir.Value,
    attn_bias: ir.Value | None,
    cum_seq_q: ir.Value | None,
    cum_seq_k: ir.Value | None,
    max_q: ir.Value | int,
    max_k: ir.Value | int,
    dropout_p: float,
    is_causal: bool,
    scale: float | None = None,
) -> tuple[ir.Value | None, ...]:
    """_scaled_dot_product_cudnn_attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out,
    Tensor logsumexp, Tensor philox_seed, Tensor philox_offset, Tensor attn_bias, Tensor cum_seq_q, Tensor cum_seq_k,
    SymInt max_q, SymInt max_k, float dropout_p, bool is_causal, *, float? scale=None) -> (Tensor, Tensor, Tensor)"""
    attention = Attention(op, CUDNN, query, key, value, dropout_p, is_causal, attn_bias, scale)
    return attention.backward(grad_out, out, op.Squeeze(logsumexp, [-1]))[:3]


def _refuse_debug_mask(op: Builder, return_debug_mask: bool) -> None:
    if return_debug_mask:
        raise op.unsupported("return_debug_mask=True; leave it False")


def _length(op: Builder, position: int, x: ir.Value) -> ir.Value | None:
    """The sequence length of ``x`` as result ``position``."""
    if not op.wanted(position):
        return None
    length = op.size(x, 2)
    return op.const(length) if isinstance(length, int) else length


def _aligned(op: Builder, logsumexp: ir.Value, query: ir.Value) -> ir.Value:
    """(B, H, L) filled up with inf to a last size that is a multiple of ``_ALIGNMENT``."""
    length = op.size(query, 2)
    missing = -length % _ALIGNMENT if isinstance(length, int) else op.Mod(op.Neg(length), _ALIGNMENT)
    return op.Pad(logsumexp, op.dims([0, 0, 0, 0, 0, missing]), op.const(math.inf, torch.float32))
