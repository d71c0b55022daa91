"""Which values of another model bear the name of one of ours and are another's."""

from __future__ import annotations

from collections.abc import Sequence, Set

import torch
from torch import fx

from dort_compare.align.content import Sketch, sketch, tolerance
from dort_compare.measure.noise.floor import noise_floor
from dort_compare.measure.noise.inherited import is_noise
from dort_compare.measure.reach import Lineage
from dort_compare.measure.rows import Row
from dort_compare.trace import GraphRun
from dort_compare.trace.four_executions import Executed
from dort_compare.trace.reachable import computed_of


class Contents:
    """What the values of a graph hold in torch, and in another model those that are told by their ``names`` alone, of
    FX nodes; nothing where there are none such."""

    def __init__(self, names: Set[str]) -> None:
        self.names = names
        self._theirs: dict[str, Sketch] = {}
        self._ours: dict[str, Sketch] = {}
        self._halved: set[str] = set()
        self._in_another_order: set[str] = set()

    def see(self, executed: Executed, _precision: torch.dtype | None, row: Row) -> None:
        """Is shown a value, in the order of execution."""
        name = executed.step.node.name
        if self.names:
            self._ours[name] = sketch(executed.step.value.cpu())
        if name in self.names and executed.own is not None:
            self._theirs[name] = sketch(executed.own.cpu())
            if row.held_in is not None:
                self._halved.add(name)
            if row.status == "diverges" and self._holds_the_same(name, executed.own, executed.step.value):
                self._in_another_order.add(name)

    def _holds_the_same(self, name: str, *sides: torch.Tensor) -> bool:
        """Whether theirs and ours have the same floating numbers, in whatever order."""
        if not self._theirs[name].is_telling or not all(side.is_floating_point() for side in sides):
            return False
        theirs, ours = (sketch(side.cpu().flatten().sort().values) for side in sides)
        return theirs.is_near(ours, tolerance(halved=self._is_halved(name, name), exact=True))

    def is_of_another(self, node: fx.Node) -> bool:
        """Whether the value with the name of ``node`` holds what torch computes under another: other tools have fewer
        calls to count, and fold what follows into one. What ``node`` is computed of it may hold because an operation
        is lost, unless another name of theirs holds what torch computes under this."""
        theirs = self._theirs.get(node.name)
        if theirs is None or not theirs.is_telling:
            return False
        held = {other for other in self._ours if other != node.name and self._is_near(node.name, other)}
        if held - {read.name for read in computed_of(node)}:
            return True
        return bool(held) and any(self._is_near(other, node.name) for other in self._theirs if other != node.name)

    def is_in_another_order(self, node: fx.Node, unaligned: Set[str]) -> bool:
        """Whether the value with the name of ``node`` has our elements in another order, as where rows of a batch are
        laid out otherwise from an earlier value on: from one that no value of theirs stands for."""
        return node.name in self._in_another_order and any(read.name in unaligned for read in node.all_input_nodes)

    def _is_near(self, theirs: str, ours: str) -> bool:
        """Whether theirs lies where ours of that name does, and not as near to ours of its own, as where that is viewed
        otherwise."""
        apart = self._theirs[theirs].distance(self._ours[ours])
        is_near = apart <= tolerance(halved=self._is_halved(theirs, ours))
        return is_near and 2 * apart < self._theirs[theirs].distance(self._ours[theirs])

    def _is_halved(self, theirs: str, ours: str) -> bool:
        return theirs in self._halved or self._ours[ours].dtype.itemsize < 4


def misnamed(run: GraphRun, rows: Sequence[Row], contents: Contents) -> frozenset[str]:
    """The FX nodes whose values, told by their names alone, are not torch's, once one holds another of torch's and
    nothing comes of it, else those whose values are torch's in another order: such names tell nothing.

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
    astray = frozenset(row.fx_node for row in rows if row.fx_node in contents.names and not _is_right(row))
    nodes = [node for node in run.graph_module.graph.nodes if node.name in astray]
    if any(map(contents.is_of_another, nodes)):
        return astray
    unaligned = frozenset(row.fx_node for row in rows if row.status == "unaligned")
    return frozenset(node.name for node in nodes if contents.is_in_another_order(node, unaligned))


def _is_right(row: Row) -> bool:
    """Whether ONNX Runtime's own value is torch's but for noise."""
    found = row.inherited
    if found is None:
        return False
    dtype = getattr(torch, row.held_in or row.dtype)
    precision = dtype if dtype.is_floating_point else None
    floor = noise_floor(precision, float(found.scale or 0), row.torch_vs_float64, found.numel)
    return is_noise(found, floor, row.onnx_vs_float64)
