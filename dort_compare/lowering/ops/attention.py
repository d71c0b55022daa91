"""Scaled dot product attention, forward and backward, as torch's fused kernels split it.

Shapes: query (B, H, L, E), key and value (B, K, S, E) where H is a multiple of K, bias broadcastable to (B, H, L, S),
logsumexp (B, H, L). Everything is computed in float32 for half-precision operands.
"""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder, fake_of, shape_of
from dort_compare.lowering.precision import in_float32, opmath, raise_half
from dort_compare.lowering.registry import lowering

aten = torch.ops.aten


@lowering(aten._scaled_dot_product_flash_attention_for_cpu.default)
@in_float32
def flash_for_cpu(
    op: Builder,
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    attn_mask: ir.Value | None = None,
    scale: float | None = None,
) -> tuple[ir.Value, ir.Value]:
    """_scaled_dot_product_flash_attention_for_cpu(Tensor query, Tensor key, Tensor value, float dropout_p=0.0,
    bool is_causal=False, *, Tensor? attn_mask=None, float? scale=None) -> (Tensor output, Tensor logsumexp)"""
    attention = _Attention(op, query, key, value, dropout_p, is_causal, attn_mask, scale)
    return attention.forward()


@lowering(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
@in_float32
def flash_for_cpu_backward(
    op: Builder,
    grad_out: ir.Value,
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    out: ir.Value,
    logsumexp: ir.Value,
    dropout_p: float,
    is_causal: bool,
    attn_mask: ir.Value | None = None,
    scale: float | None = None,
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """_scaled_dot_product_flash_attention_for_cpu_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value,
    Tensor out, Tensor logsumexp, float dropout_p, bool is_causal, *, Tensor? attn_mask=None, float? scale=None)
    -> (Tensor grad_query, Tensor grad_key, Tensor grad_value)"""
    attention = _Attention(op, query, key, value, dropout_p, is_causal, attn_mask, scale)
    return attention.backward(grad_out, out, logsumexp)


class _Attention:
    """The arithmetic that the kernels of all devices share."""

    def __init__(
        self,
        op: Builder,
        query: ir.Value,
        key: ir.Value,
        value: ir.Value,
        dropout_p: float,
        is_causal: bool,
        bias: ir.Value | None,
        scale: float | None,
    ) -> None:
        if dropout_p:
            raise op.unsupported(f"dropout_p={dropout_p} inside attention; set it to 0")
        self.op = op
        self.dtype = opmath(fake_of(query).dtype)
        self.scale = 1 / math.sqrt(int(shape_of(query)[-1])) if scale is None else scale
        self.groups = _groups(op, query, key)
        self.is_causal = is_causal
        self.bias = raise_half(op, bias)
        self.query, self.key, self.value = query, self._repeated(key), self._repeated(value)
        self.key_shape = shape_of(key)

    def forward(self) -> tuple[ir.Value, ir.Value]:
        """Output (B, H, L, E) and logsumexp (B, H, L). A row that sees no key gives 0 and 0, as torch does."""
        op = self.op
        scores = self._scores()
        highest = op.ReduceMax(scores, [-1], keepdims=1)
        finite = op.Where(op.Equal(highest, self._number(-math.inf)), self._number(0), highest)
        weights = op.Exp(op.Sub(scores, finite))
        total = op.ReduceSum(weights, [-1], keepdims=1)
        divisor = op.Where(op.Equal(total, self._number(0)), self._number(1), total)
        logsumexp = op.Squeeze(op.Add(finite, op.Log(divisor)), [-1])
        return op.MatMul(op.Div(weights, divisor), self.value), logsumexp

    def backward(self, grad_out: ir.Value, out: ir.Value, logsumexp: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
        """Gradients of query, key and value.

        With P = exp(scores - logsumexp): dV = P' dO; dS = P (dO V' - rowsum(dO O)); dQ = scale dS K; dK = scale dS' Q
        (Dao et al., FlashAttention, 2022, appendix B.2).
        """
        op = self.op
        probabilities = op.Exp(op.Sub(self._scores(), op.Unsqueeze(logsumexp, [-1])))
        grad_value = op.MatMul(self._transposed(probabilities), grad_out)
        grad_probabilities = op.MatMul(grad_out, self._transposed(self.value))
        row = op.ReduceSum(op.Mul(grad_out, out), [-1], keepdims=1)
        grad_scores = op.Mul(op.Mul(probabilities, op.Sub(grad_probabilities, row)), self._number(self.scale))
        grad_query = op.MatMul(grad_scores, self.key)
        grad_key = op.MatMul(self._transposed(grad_scores), self.query)
        return grad_query, self._summed(grad_key), self._summed(grad_value)

    def _scores(self) -> ir.Value:
        op = self.op
        scores = op.Mul(op.MatMul(self.query, self._transposed(self.key)), self._number(self.scale))
        if self.bias is not None:
            scores = op.Add(scores, op.cast(self.bias, self.dtype))
        if not self.is_causal:
            return scores
        rows = op.Range(op.const(0), op.Squeeze(op.Shape(self.query, start=2, end=3), [0]), op.const(1))
        columns = op.Range(op.const(0), op.Squeeze(op.Shape(self.key, start=2, end=3), [0]), op.const(1))
        seen = op.LessOrEqual(op.Unsqueeze(columns, [0]), op.Unsqueeze(rows, [1]))
        return op.Where(seen, scores, self._number(-math.inf))

    def _number(self, number: float) -> ir.Value:
        return self.op.const(number, self.dtype)

    def _transposed(self, x: ir.Value) -> ir.Value:
        return self.op.Transpose(x, perm=[0, 1, 3, 2])

    def _repeated(self, x: ir.Value) -> ir.Value:
        """(B, K, S, E) to (B, H, S, E): every head of keys serves a group of heads of queries."""
        if self.groups == 1:
            return x
        op = self.op
        batch, heads, length, width = (op.size(x, d) for d in range(4))
        wide = op.Expand(op.Unsqueeze(x, [2]), op.dims([1, 1, self.groups, 1, 1]))
        return op.Reshape(wide, op.dims([batch, int(heads) * self.groups, length, width]))  # type: ignore[arg-type]

    def _summed(self, grad: ir.Value) -> ir.Value:
        """The gradient of ``_repeated``."""
        if self.groups == 1:
            return grad
        op = self.op
        shape = [n if isinstance(n, int) else -1 for n in self.key_shape]
        if shape.count(-1) > 1:
            raise op.unsupported("the gradient of grouped heads with two symbolic sizes")
        grouped = op.Reshape(grad, op.dims([shape[0], shape[1], self.groups, *shape[2:]]))
        return op.ReduceSum(grouped, [2], keepdims=0)


def _groups(op: Builder, query: ir.Value, key: ir.Value) -> int:
    heads, key_heads = shape_of(query)[1], shape_of(key)[1]
    if not isinstance(heads, int) or not isinstance(key_heads, int):
        raise op.unsupported("a symbolic number of heads")
    return heads // key_heads
