"""Arithmetic on sizes for lowerings: on numbers where they are known, on 0-d int64 values where they are symbolic."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from dort_compare.lowering.builder import Builder, Dim


def plus(op: Builder, a: Dim, b: Dim) -> Dim:
    return a + b if isinstance(a, int) and isinstance(b, int) else op.Add(op.const(a), op.const(b))


def minus(op: Builder, a: Dim, b: Dim) -> Dim:
    return a - b if isinstance(a, int) and isinstance(b, int) else op.Sub(op.const(a), op.const(b))


def times(op: Builder, a: Dim, b: Dim) -> Dim:
    return a * b if isinstance(a, int) and isinstance(b, int) else op.Mul(op.const(a), op.const(b))


def smaller(op: Builder, a: Dim, b: Dim) -> Dim:
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else op.Min(op.const(a), op.const(b))


def larger(op: Builder, a: Dim, b: Dim) -> Dim:
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else op.Max(op.const(a), op.const(b))


def product(op: Builder, sizes: Iterable[Dim]) -> Dim:
    return functools.reduce(functools.partial(times, op), sizes, 1)


def from_front(op: Builder, index: Dim, size: Dim) -> Dim:
    """An index, negative where it is counted from the end, counted from the front."""
    if isinstance(index, int):
        return index if index >= 0 else plus(op, size, index)
    return op.Where(op.Less(index, 0), op.Add(index, op.const(size)), index)
