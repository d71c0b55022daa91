"""Arithmetic on sizes for lowerings: on numbers where they are known, on 0-d int64 values where they are symbolic."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.values import Dim


def plus(op: Builder, a: Dim, b: Dim) -> Dim:
    """a + b"""
    return a + b if isinstance(a, int) and isinstance(b, int) else op.Add(op.const(a), op.const(b))


def minus(op: Builder, a: Dim, b: Dim) -> Dim:
    """a - b"""
    return a - b if isinstance(a, int) and isinstance(b, int) else op.Sub(op.const(a), op.const(b))


def times(op: Builder, a: Dim, b: Dim) -> Dim:
    """a * b"""
    if a == 1 or b == 1:
        return b if a == 1 else a
    return a * b if isinstance(a, int) and isinstance(b, int) else op.Mul(op.const(a), op.const(b))


def floordiv(op: Builder, a: Dim, b: Dim) -> Dim:
    """a // b, rounded down, where ONNX truncates: (a - a mod b) / b, with the modulus of b's sign."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    dividend, divisor = op.const(a), op.const(b)
    return op.Div(op.Sub(dividend, op.Mod(dividend, divisor)), divisor)


def smaller(op: Builder, a: Dim, b: Dim) -> Dim:
    """min(a, b)"""
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else op.Min(op.const(a), op.const(b))


def larger(op: Builder, a: Dim, b: Dim) -> Dim:
    """max(a, b)"""
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else op.Max(op.const(a), op.const(b))


def product(op: Builder, sizes: Iterable[Dim]) -> Dim:
    """The product of all of them, 1 of none."""
    total: Dim = 1
    for size in sizes:
        total = times(op, total, size)
    return total


def from_front(op: Builder, index: Dim, size: Dim) -> Dim:
    """An index, negative where it is counted from the end, counted from the front."""
    if isinstance(index, int):
        return index if index >= 0 else plus(op, size, index)
    return op.Where(op.Less(index, 0), op.Add(index, op.const(size)), index)


def behind_one_another(op: Builder, *vectors: ir.Value) -> ir.Value:
    """Vectors of sizes as one, which is a constant if they are."""
    known = [vector.const_value for vector in vectors]
    if all(value is not None for value in known):
        return op.const([size for value in known if value is not None for size in value.numpy().tolist()])
    return op.Concat(*vectors, axis=0)
