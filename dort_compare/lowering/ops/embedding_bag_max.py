"""The largest of each bag of rows, element by element, and the gradient that goes back to where it stood."""

from __future__ import annotations

import math

import onnx_ir as ir

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.values import Dim, dtype_of


def largest_of_bags(
    op: Builder, rows: ir.Value, indices: ir.Value, bags: ir.Value, counts: ir.Value, size: list[Dim]
) -> tuple[ir.Value, ir.Value]:
    """Of a table of ``size`` the largest elements, and which of the indices they bear; both 0 in a bag without rows.

    Of ``rows`` those count for which ``counts`` is true. The first of equal elements is the largest. NaN is, as in
    torch's kernel, if it stands in the first row of a bag, and only there.
    """
    places = op.Range(0, op.own_size(bags, 0), 1)
    nowhere = op.Shape(bags)
    first = _scattered(op, nowhere, size[:1], bags, op.Where(counts, places, nowhere), "min")
    is_bare = op.Equal(first, nowhere)
    first = op.Where(is_bare, op.const([0]), first)
    begins_with_nan = op.IsNaN(op.Gather(rows, first, axis=0))
    first, is_bare, counts, places = (op.Unsqueeze(each, [1]) for each in (first, is_bare, counts, places))

    spread = op.Expand(op.Unsqueeze(bags, [1]), op.Shape(rows))
    lowest = op.const([-math.inf], dtype_of(rows))
    comparable = op.Where(op.And(counts, op.Not(op.IsNaN(rows))), rows, lowest)
    largest = op.Gather(_scattered(op, lowest, size, spread, comparable, "max"), bags, axis=0)
    found = op.Where(op.And(counts, op.Equal(rows, largest)), places, nowhere)
    found = _scattered(op, nowhere, size, spread, found, "min")
    place = op.Where(op.Or(is_bare, begins_with_nan), first, found)
    index = op.Gather(indices, place, axis=0)
    return tuple(
        op.Where(is_bare, op.const(0, dtype_of(values)), values)
        for values in (op.GatherElements(rows, place, axis=0), index)
    )


def _scattered(
    op: Builder, beginning: ir.Value, size: list[Dim], targets: ir.Value, values: ir.Value, reduction: str
) -> ir.Value:
    return op.ScatterElements(op.Expand(beginning, op.dims(size)), targets, values, axis=0, reduction=reduction)


def gradient_of_largest(
    op: Builder, grad: ir.Value, bag_size: ir.Value, maximum_indices: ir.Value, size: list[Dim]
) -> ir.Value:
    """The gradient of each bag that has rows, added up in a table of ``size`` where its largest elements stood."""
    zero = op.const([0], dtype_of(grad))
    grad = op.Where(op.Unsqueeze(op.Greater(bag_size, 0), [1]), grad, zero)
    return _scattered(op, zero, size, maximum_indices, grad, "add")
