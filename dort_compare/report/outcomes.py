"""Outputs, gradients and updates, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

import torch

from dort_compare.dtypes import dtype_name
from dort_compare.measure.outcome import Kind, OutcomeRow
from dort_compare.measure.rollup import ranked
from dort_compare.report.tables import max_abs, new_table, number, rendered, shape_text


def outcome_table(rows: Sequence[OutcomeRow]) -> str:
    """Every output, gradient and update with its distance from eager."""
    table = new_table("", "kind", "name", "dtype", "shape", "max_abs", "max_rel", "torch/f64", "onnx/f64")
    for row in rows:
        cells = (_mark(row), row.kind, row.name, row.dtype, shape_text(row.shape), max_abs(row.distance))
        relative = number(row.distance.max_rel if row.distance else None)
        table.add_row(*cells, relative, number(row.torch_vs_float64), number(row.onnx_vs_float64))
    return rendered(table)


def furthest_table(rows: Sequence[OutcomeRow], limit: int) -> str:
    """The outputs, then gradients, then updates, furthest from eager: at most ``limit`` of each, in noise floors."""
    table = new_table("", "furthest from eager", "kind", "shape", "max_abs", "noise floors")
    several = len({row.backend for row in rows}) > 1
    for kind in get_args(Kind):
        for row, ratio in ranked([row for row in rows if row.kind == kind])[:limit]:
            what = f"{kind}, {row.backend}" if several else kind
            table.add_row(_mark(row), row.name, what, shape_text(row.shape), max_abs(row.distance), number(ratio))
    left = len(rows) - table.row_count
    return rendered(table) + (f"\nand {left} more, nearer" if left else "")


def tensors_table(kind: str, tensors: Mapping[str, torch.Tensor]) -> str:
    """Name, dtype, shape and sum of tensors."""
    table = new_table("kind", "name", "dtype", "shape", "sum")
    for name, tensor in tensors.items():
        dtype = dtype_name(tensor.dtype)
        table.add_row(kind, name, dtype, shape_text(tensor.shape), f"{tensor.sum(dtype=torch.float64).item():.6g}")
    return rendered(table)


def _mark(row: OutcomeRow) -> str:
    return "=" if row.distance and row.distance.equal else "~" if row.ok else "!"
