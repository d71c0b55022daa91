"""Scaled dot product attention, forward and backward, as torch's fused kernels split it.

Shapes: query (B, H, L, E), key (B, K, S, E), value (B, K, S, V) where H is a multiple of K, bias broadcastable to
(B, H, L, S), logsumexp (B, H, L), natural. Everything is computed in float32 for half-precision operands.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.precision import in_float32, opmath, raise_half
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.sizes import minus, plus
from dort_compare.lowering.values import Dim, fake_of, shape_of

aten = torch.ops.aten


@dataclass(frozen=True)
class Kernel:
    """In what torch's kernels differ.

    A row of queries that sees no key has output 0 in all of them, and ``empty_row`` as its logsumexp. The causal mask
    of a score matrix that is not square starts in its top left corner, or ends in its bottom right one.
    """

    empty_row: float
    bottom_right: bool = False


CPU = Kernel(empty_row=0.0)


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
) -> tuple[ir.Value, ir.Value | None]:
    """_scaled_dot_product_flash_attention_for_cpu(Tensor query, Tensor key, Tensor value, float dropout_p=0.0,
    bool is_causal=False, *, Tensor? attn_mask=None, float? scale=None) -> (Tensor output, Tensor logsumexp)"""
    return Attention(op, CPU, query, key, value, dropout_p, is_causal, attn_mask, scale).forward()


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
) -> tuple[ir.Value | None, ...]:
    """_scaled_dot_product_flash_attention_for_cpu_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value,
    Tensor out, Tensor logsumexp, float dropout_p, bool is_causal, *, Tensor? attn_mask=None, float? scale=None)
    -> (Tensor grad_query, Tensor grad_key, Tensor grad_value)"""
    attention = Attention(op, CPU, query, key, value, dropout_p, is_causal, attn_mask, scale)
    return attention.backward(grad_out, out, logsumexp)[:3]


class Attention:
    """The arithmetic that the kernels of all devices share; half-precision operands enter it as float32.

    Of the results, those that the graph reads are computed; the others are None.
    """

    def __init__(
        self,
        op: Builder,
        kernel: Kernel,
        query: ir.Value,
        key: ir.Value,
        value: ir.Value,
        dropout_p: float,
        is_causal: bool,
        bias: ir.Value | None,
        scale: float | ir.Value | None,
    ) -> None:
        if dropout_p:
            raise op.unsupported(f"dropout_p={dropout_p} inside attention; set it to 0")
        self.op = op
        self.kernel = kernel
        self.dtype = opmath(fake_of(query).dtype)
        self.scale = self._root_of_width(query) if scale is None else scale
        self.is_causal = is_causal
        self.query, self.key, self.value, self.bias = (raise_half(op, x) for x in (query, key, value, bias))
        self.keys, self.values = self._repeated(self.key), self._repeated(self.value)

    def forward(self) -> tuple[ir.Value, ir.Value | None]:
        """Output (B, H, L, V) and logsumexp (B, H, L)."""
        op = self.op
        scores = self._scores()
        highest = op.ReduceMax(scores, [3], keepdims=1)
        finite = op.Where(op.Equal(highest, self._number(-math.inf)), self._number(0), highest)
        weights = op.Exp(op.Sub(scores, finite))
        total = op.ReduceSum(weights, [3], keepdims=1)
        empty = op.Equal(total, self._number(0))
        divisor = op.Where(empty, self._number(1), total)
        output = op.MatMul(op.Div(weights, divisor), self.values)
        if not op.wanted(1):
            return output, None
        logsumexp = op.Where(empty, self._number(self.kernel.empty_row), op.Add(finite, op.Log(divisor)))
        return output, op.Squeeze(logsumexp, [-1])

    def backward(self, grad_out: ir.Value, out: ir.Value, logsumexp: ir.Value) -> tuple[ir.Value | None, ...]:
        """Gradients of query, key, value and bias.

        With P = exp(scores - logsumexp): dV = P' dO; dS = P (dO V' - rowsum(dO O)); dbias = dS; dQ = scale dS K;
        dK = scale dS' Q (Dao et al., FlashAttention, 2022, appendix B.2).
        """
        op = self.op
        probabilities = op.Exp(op.Sub(self._scores(), self._subtrahend(logsumexp)))
        grad_query = grad_key = grad_value = grad_bias = None
        if op.wanted(2):
            grad_value = self._summed(op.MatMul(self._transposed(probabilities), grad_out), self.value)
        if op.wanted(0) or op.wanted(1) or op.wanted(3):
            grad_probabilities = op.MatMul(grad_out, self._transposed(self.values))
            row = op.ReduceSum(op.Mul(grad_out, out), [3], keepdims=1)
            grad_scores = op.Mul(probabilities, op.Sub(grad_probabilities, row))
            scaled = op.Mul(grad_scores, self._number(self.scale))
            grad_query = op.MatMul(scaled, self.keys) if op.wanted(0) else None
            if op.wanted(1):
                grad_key = self._summed(op.MatMul(self._transposed(scaled), self.query), self.key)
            if op.wanted(3):
                grad_bias = self._broadcast_back(grad_scores)
        return grad_query, grad_key, grad_value, grad_bias

    def _scores(self) -> ir.Value:
        op = self.op
        scores = op.Mul(op.MatMul(self.query, self._transposed(self.keys)), self._number(self.scale))
        if self.bias is not None:
            scores = op.Add(scores, op.cast(self.bias, self.dtype))
        if not self.is_causal:
            return scores
        queries, keys = (op.size(x, 2) for x in (self.query, self.key))
        first = minus(op, keys, queries) if self.kernel.bottom_right else 0
        rows = op.Range(first, plus(op, first, queries), 1)
        seen = op.LessOrEqual(op.Unsqueeze(op.Range(0, keys, 1), [0]), op.Unsqueeze(rows, [1]))
        lengths = shape_of(self.query)[2], shape_of(self.key)[2]
        seen.shape = ir.Shape([size if isinstance(size, int) else None for size in lengths])
        return op.Where(seen, scores, self._number(-math.inf))

    def _subtrahend(self, logsumexp: ir.Value) -> ir.Value:
        """The logsumexp as a column, such that exp(-inf - it) is 0: where it is -inf itself, 0 takes its place."""
        op = self.op
        column = op.Unsqueeze(logsumexp, [-1])
        if self.kernel.empty_row != -math.inf:
            return column
        return op.Where(op.Equal(column, self._number(-math.inf)), self._number(0), column)

    def _root_of_width(self, query: ir.Value) -> float | ir.Value:
        """1 / sqrt(E)"""
        op, width = self.op, self.op.size(query, 3)
        if isinstance(width, int):
            return 1 / math.sqrt(width)
        return op.Reciprocal(op.Sqrt(op.cast(width, torch.float64)))

    def _number(self, number: float | ir.Value) -> ir.Value:
        return self.op.const(number, self.dtype)

    def _transposed(self, x: ir.Value) -> ir.Value:
        return self.op.Transpose(x, perm=[0, 1, 3, 2])

    def _groups(self, x: ir.Value) -> Dim:
        """H / K"""
        if str(shape_of(self.query)[1]) == str(shape_of(x)[1]):
            return 1
        heads, own_heads = (self.op.size(each, 1) for each in (self.query, x))
        if isinstance(heads, int) and isinstance(own_heads, int):
            return heads // own_heads
        return self.op.Div(heads, own_heads)

    def _repeated(self, x: ir.Value) -> ir.Value:
        """(B, K, S, E) to (B, H, S, E): every head of keys serves a group of heads of queries."""
        op, groups = self.op, self._groups(x)
        if groups == 1:
            return x
        batch, _, length, width = (op.size(x, d) for d in range(4))
        wide = op.Expand(op.Unsqueeze(x, [2]), op.dims([1, 1, groups, 1, 1]))
        return op.Reshape(wide, op.dims([batch, op.size(self.query, 1), length, width]))

    def _summed(self, grad: ir.Value, x: ir.Value) -> ir.Value:
        """The gradient of ``_repeated(x)``."""
        op, groups = self.op, self._groups(x)
        if groups == 1:
            return grad
        batch, heads, length, width = (op.size(x, d) for d in range(4))
        return op.ReduceSum(op.Reshape(grad, op.dims([batch, heads, groups, length, width])), [2], keepdims=0)

    def _broadcast_back(self, grad_scores: ir.Value) -> ir.Value:
        """The gradient of broadcasting the bias to (B, H, L, S)."""
        sizes = shape_of(self.bias)
        missing = 4 - len(sizes)
        stretched = [missing + d for d, size in enumerate(sizes) if isinstance(size, int) and size == 1]
        if stretched:
            grad_scores = self.op.ReduceSum(grad_scores, stretched, keepdims=1)
        return self.op.ReduceSum(grad_scores, list(range(missing)), keepdims=0) if missing else grad_scores
