"""Which values of another model bear the name of one of ours and are another's."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dort_compare.align.named_alike import named_alike
from dort_compare.measure.noise.floor import noise_floor
from dort_compare.measure.noise.inherited import is_noise
from dort_compare.measure.reach import Lineage
from dort_compare.measure.rows import Row
from dort_compare.trace import GraphRun


def misnamed(run: GraphRun, rows: Sequence[Row]) -> frozenset[str]:
    """The FX nodes whose values, told by their names alone, are others than torch's although nothing comes of it.

    ``torch.onnx.export`` counts its calls otherwise, and a batch norm that is folded leaves the name of the convolution
    to its own result. None where a result of the graph is not right: a value may be wrong then.
    """
    lineage = Lineage([run])
    results = [row for row in rows if lineage.is_result(run.index, row.fx_node)]
    if not results or not all(_is_right(row) for row in results):
        return frozenset()
    return named_alike(run.onnx_model) & {row.fx_node for row in rows if row.status != "ok" and not _is_right(row)}


def _is_right(row: Row) -> bool:
    """Whether ONNX Runtime's own value is torch's but for noise."""
    found = row.inherited
    if found is None:
        return False
    dtype = getattr(torch, row.dtype)
    precision = dtype if dtype.is_floating_point else None
    floor = noise_floor(precision, float(found.scale or 0), row.torch_vs_float64, found.numel)
    return is_noise(found, floor, row.onnx_vs_float64)
