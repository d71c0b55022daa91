"""Which values of another model bear the name of one of ours and are another's."""

from __future__ import annotations

from collections.abc import Sequence, Set

import torch

from dort_compare.align.content import Sketch, sketch, tolerance
from dort_compare.measure.noise.floor import noise_floor
from dort_compare.measure.noise.inherited import is_noise
from dort_compare.measure.reach import Lineage
from dort_compare.measure.rows import Row
from dort_compare.trace import GraphRun
from dort_compare.trace.executions import Executed


class Contents:
    """What the values of a graph hold in torch, and in another model those that are told by their ``names`` alone, of
    FX nodes; nothing where there are none such."""

    def __init__(self, names: Set[str]) -> None:
        self.names = names
        self._theirs: dict[str, Sketch] = {}
        self._ours: dict[str, Sketch] = {}

    def see(self, executed: Executed, _precision: torch.dtype | None, _row: Row) -> None:
        """Is shown a value, in the order of execution."""
        name = executed.step.node.name
        if self.names:
            self._ours[name] = sketch(executed.step.value.cpu())
        if name in self.names and executed.own is not None:
            self._theirs[name] = sketch(executed.own.cpu())

    def is_of_a_later_one(self, name: str) -> bool:
        """Whether the value of that name holds what torch computes later: other tools have fewer calls to count, and
        fold what follows into one. What it computes earlier holds a value whose operation is lost, too."""
        theirs, order = self._theirs.get(name), list(self._ours)
        if theirs is None or not theirs.is_telling:
            return False
        later = (self._ours[other] for other in order[order.index(name) + 1 :])
        return any(theirs.is_near(other, tolerance(halved=other.dtype.itemsize < 4)) for other in later)


def misnamed(run: GraphRun, rows: Sequence[Row], contents: Contents) -> frozenset[str]:
    """The FX nodes whose values, told by their names alone, hold later ones, and nothing comes of it.

    ``torch.onnx.export`` counts its calls otherwise, and a batch norm that is folded leaves the name of the convolution
    to its own result. None where a result of the graph is not right: a value may be wrong then.
    """
    if not contents.names:
        return frozenset()
    lineage = Lineage([run])
    results = (row.fx_node for row in rows if lineage.is_result(run.index, row.fx_node))
    sources = {source for result in results for source in lineage.shown(run.index, result)}
    right = {row.fx_node for row in rows if row.fx_node in sources and _is_right(row)}
    if not sources or right != sources:
        return frozenset()
    astray = (row.fx_node for row in rows if row.fx_node in contents.names and not _is_right(row))
    return frozenset(filter(contents.is_of_a_later_one, astray))


def _is_right(row: Row) -> bool:
    """Whether ONNX Runtime's own value is torch's but for noise."""
    found = row.inherited
    if found is None:
        return False
    dtype = getattr(torch, row.dtype)
    precision = dtype if dtype.is_floating_point else None
    floor = noise_floor(precision, float(found.scale or 0), row.torch_vs_float64, found.numel)
    return is_noise(found, floor, row.onnx_vs_float64)
