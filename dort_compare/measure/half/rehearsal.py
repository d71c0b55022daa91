"""The training steps of a comparison again on torch's kernels, with chosen lines of the model in float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import fx

from dort_compare.dtypes import coarsest, is_half_tensor
from dort_compare.measure.half.half_floor import half_floor, relative_error, roundings_before
from dort_compare.node_meta import OPERATION
from dort_compare.provenance import module_path, source_line
from dort_compare.trace.eager import Interpreter
from dort_compare.trace.kept import Kept
from dort_compare.trace.reachable import behind
from dort_compare.trace.rounding_probe import RoundingProbe
from dort_compare.trace.training_step import MakeInterpreter, TrainingStep

Key = tuple[int, str, str]
"""A result: the number of its training step, "output" or "gradient", and its name."""
_LARGEST_SCALE = 2.0**24
_MOSTLY = 0.5
_ROOM = 4.0
"""A loss scale leaves so much between the largest number that it makes and the end of float16."""


@dataclass(frozen=True)
class Unit:
    """Rounding FX nodes that go together: an op of the forward graph and what differentiates it.

    ``step`` numbers the training step; ``module`` and ``source`` are the line that a person can keep in float32.
    """

    step: int
    module: str
    source: str
    nodes: tuple[str, ...]


class Rehearsal:
    """Runs training steps from the inputs that were recorded; ``runs`` counts how often.

    Making one runs each step as it is and in float64. A tangent that is not
    finite is replaced by fixed random numbers; ``stand_ins`` counts those.
    """

    def __init__(self, steps: Sequence[TrainingStep]) -> None:
        self.runs = 0
        self._steps = steps
        self._tangents = [{name: _finite(t) for name, t in step.tangents.items()} for step in steps]
        pairs = zip(steps, self._tangents, strict=True)
        self.stand_ins = sum(used[n] is not t for step, used in pairs for n, t in step.tangents.items())
        graphs = [run.graph_module for step in steps for run in step.graphs]
        probes = {graph: RoundingProbe(graph) for graph in graphs}
        as_is = self._run(lambda _: Interpreter)
        exact = self._run(lambda _: probes.__getitem__)
        self._rounding = [[n for g in s.graphs for n in probes[g.graph_module].rounding] for s in steps]
        self._exact_nodes = [frozenset(n for g in s.graphs for n in probes[g.graph_module].exact) for s in steps]
        self._largest = {graph: probe.largest for graph, probe in probes.items()}
        self._exact = {k: e for k, e in exact.items() if k in as_is and e.shape == as_is[k].shape and _is_measure(e)}
        self._dtypes = {key: value.dtype for key, value in as_is.items()}
        self.before = self._errors(as_is)

    @cached_property
    def floors(self) -> Mapping[Key, float]:
        """The floor of every result that half precision reaches."""
        found = {}
        for i, step in enumerate(self._steps):
            graphs = [run.graph_module.graph for run in step.graphs]
            before = roundings_before(graphs, self._rounding[i])
            dtype = coarsest([dtype for graph in graphs for dtype in _half_dtypes(graph)])
            for kind, nodes in (("output", step.outputs), ("gradient", step.gradients)):
                for name, node in nodes.items():
                    key = (i, kind, name)
                    if dtype and before[node.name] and key in self._exact:
                        found[key] = half_floor(dtype, before[node.name], self._exact[key].numel())
        return found

    @cached_property
    def units(self) -> list[Unit]:
        """All that rounds to half precision, in order of execution."""
        found: dict[tuple[int, str, str, object], dict[str, None]] = {}
        for i, step in enumerate(self._steps):
            rounding = set(self._rounding[i])
            for node in (node for run in step.graphs for node in run.graph_module.graph.nodes):
                if node.name in rounding:
                    op = node.meta.get(OPERATION) if step.backward else node.name
                    found.setdefault((i, module_path(node), source_line(node), op), {})[node.name] = None
        return [Unit(i, module, source, tuple(names)) for (i, module, source, _), names in found.items()]

    @cached_property
    def loss_scale(self) -> float:
        """The power of two that takes the float16 values of the backward graphs near the end of their range.

        At most 2^24; 1 where none of them is float16 or they are there already.
        """
        largest = 0.0
        for step in self._steps:
            if step.backward:
                numbers = self._largest[step.backward.graph_module]
                tangents, nodes = step.tangents, step.backward.graph_module.graph.nodes
                scaled = {node.name for node in behind(node for node in nodes if node.name in tangents)}
                largest = max([largest, *(number for name, number in numbers.items() if name in scaled)])
        room = torch.finfo(torch.float16).max / _ROOM
        if not largest:
            return _LARGEST_SCALE if self.tangents_underflow else 1.0
        return max(min(2.0 ** math.floor(math.log2(room / largest)), _LARGEST_SCALE), 1.0)

    @property
    def tangents_underflow(self) -> bool:
        """Whether what enters the backward graphs is all zero, or mostly subnormal, in float16: what it was is lost."""
        tangents = [tangent for step in self._tangents for tangent in step.values()]
        sizes = [tangent.abs() for tangent in tangents if tangent.dtype == torch.float16]
        small = sum(((size > 0) & (size < torch.finfo(torch.float16).tiny)).sum().item() for size in sizes)
        known = sum((size > 0).sum().item() for size in sizes)
        return small >= _MOSTLY * known if known else bool(sizes) and not any(tangent.any() for tangent in tangents)

    def errors(self, units: Iterable[Unit] = (), scale: float = 1.0) -> Mapping[Key, float]:
        """How far every result lies from float64, as a share of its norm, with ``units`` in float32.

        ``scale`` multiplies the loss; gradients are divided by it. A result that is not finite, or of another size, is
        inf.
        """
        return self._errors(self._run(self._with(units), scale), scale)

    @cached_property
    def void(self) -> frozenset[Key]:
        """The results of which float32 holds no digit either: their terms cancel, and exactly they are zero."""
        kept = self._run(self._with(self.units))
        errors = {key: relative_error(exact, kept[key]) for key, exact in self._exact.items() if key in kept}
        return frozenset(key for key, error in errors.items() if 1 < error < math.inf)

    def _with(self, units: Iterable[Unit]) -> Callable[[int], MakeInterpreter]:
        """The engines that keep ``units`` in float32."""
        kept: list[set[str]] = [set() for _ in self._steps]
        for unit in units:
            kept[unit.step].update(unit.nodes)
        return lambda i: lambda graph_module: Kept(graph_module, kept[i], self._exact_nodes[i])

    def _run(self, engine: Callable[[int], MakeInterpreter], scale: float = 1.0) -> dict[Key, torch.Tensor]:
        self.runs += 1
        found = {}
        for i, step in enumerate(self._steps):
            tangents = {name: tangent * scale for name, tangent in self._tangents[i].items()}
            for (kind, name), value in step.run(engine(i), tangents).items():
                found[i, kind, name] = value
        return found

    def _errors(self, values: Mapping[Key, torch.Tensor], scale: float = 1.0) -> dict[Key, float]:
        found = {}
        for key, exact in self._exact.items():
            value = values.get(key)
            if value is None or value.shape != exact.shape:
                found[key] = math.inf
            else:
                value = value.to(self._dtypes[key]).double()
                found[key] = relative_error(exact, value / scale if key[1] == "gradient" else value)
        return found


def _finite(tangent: torch.Tensor) -> torch.Tensor:
    if tangent.isfinite().all():
        return tangent
    generator = torch.Generator().manual_seed(0)
    return torch.randn(tangent.shape, generator=generator, device="cpu").to(tangent)


def _is_measure(exact: torch.Tensor) -> bool:
    """Whether errors can be told as a share of it."""
    return exact.dtype == torch.float64 and bool(exact.masked_fill(~exact.isfinite(), 0).any())


def _half_dtypes(graph: fx.Graph) -> list[torch.dtype]:
    values = (node.meta.get("val") for node in graph.nodes)
    return [value.dtype for value in values if is_half_tensor(value)]
