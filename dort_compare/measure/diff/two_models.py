"""Two models run side by side, the second twice: on its own values, and on the first model's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import onnx
import torch

from dort_compare.align.pair import Pair
from dort_compare.align.sides import Side
from dort_compare.dtypes import HALF, ONNX_HALF
from dort_compare.measure.diff.doubted import run_without_doubted
from dort_compare.measure.diff.schedule import Schedule
from dort_compare.measure.noise.shake import masks_unmoved, shake
from dort_compare.protos import copy_of
from dort_compare.trace.dataflow import Node
from dort_compare.trace.dataflow_run import DataflowRun, constant, run_nodes
from dort_compare.trace.engine import Engine

Tensors = Mapping[str, torch.Tensor]
_EXPONENTIALS = frozenset([
    "Attention", "Exp", "GroupQueryAttention", "LogSoftmax", "MultiHeadAttention", "ReduceLogSumExp", "Softmax"
])  # fmt: skip
"""Operators to which a mask is infinity."""


@dataclass(frozen=True)
class Met:
    """A pair with its tensors: the first model's, the second's on its own values, the second's on the first's values.

    ``local`` is None where nothing makes the second value: it is an input or a constant.
    """

    pair: Pair
    first: torch.Tensor
    second: torch.Tensor
    local: torch.Tensor | None
    again: Again


@dataclass(frozen=True)
class Again:
    """Makes a value once more of operands that are moved by roundings.

    ``operands`` are the values at hand, by name; of those the ``paired`` are the first model's.
    """

    engine: Engine
    side: Side
    operands: Tensors
    paired: Collection[str]

    def shaken(self, name: str, seed: int, precision: torch.dtype | None, roundings: float) -> list[torch.Tensor]:
        """The value on operands that are so many ``roundings`` of ``precision`` up or down, those of its own node and,
        where these are not paired, the paired ones that they are made of; none where none is a float. Where that is
        more than half precision, what is cast to this and back stays as it is: it may lie on the edge of a rounding."""
        node = self.side.node(name)
        if node is None:
            return []
        stretches = [[node]] if (whole := self._stretch(node)) == [node] else [[node], whole]
        shaken = partial(shake, generator=torch.Generator().manual_seed(seed), roundings=roundings)
        moved = (self._shaken(nodes, name, shaken, precision) for nodes in stretches)
        return [value for value in moved if value is not None]

    def _shaken(
        self,
        nodes: Sequence[Node],
        name: str,
        shaken: Callable[[torch.Tensor, torch.dtype], torch.Tensor],
        precision: torch.dtype | None,
    ) -> torch.Tensor | None:
        made = {result for node in nodes for result in node.results}
        read = dict.fromkeys(operand for node in nodes for operand in node.operands if operand not in made)
        known = {n: self.operands[n] for n in read if n in self.operands}
        floats = {n: t for n, t in known.items() if t.is_floating_point()}
        moved = {n: shaken(t, precision or t.dtype).to(t.dtype) for n, t in floats.items()}
        if any(node.proto.op_type in _EXPONENTIALS for node in nodes):
            moved = {n: masks_unmoved(floats[n], t) for n, t in moved.items()}
        if not moved:
            return None

        def made_by(nodes: Sequence[Node], moved: Tensors) -> torch.Tensor:
            return run_nodes(self.engine, self.side.flow, nodes, self.operands, [name], {**known, **moved})[name]

        fine = nodes if precision is None or precision in HALF else [*map(_without_half, nodes)]
        again = made_by(fine, moved)
        if fine != nodes:
            own = made_by(nodes, {})
            again = own + (again - made_by(fine, {})) if own.is_floating_point() else made_by(nodes, moved)
        return self.side.shown(name, again)

    def _stretch(self, node: Node) -> list[Node]:
        """The nodes from paired values to the results of ``node``; that one alone where those are not at hand."""
        found, todo = {node.index: node}, [node]
        while todo:
            for name in filter(None, todo.pop().operands):
                maker = None if name in self.paired else self.side.node(name)
                if maker is None and name not in self.operands and name not in self.side.flow.constants:
                    return [node]
                if maker is not None and maker.index not in found:
                    found[maker.index] = maker
                    todo.append(maker)
        return [found[i] for i in sorted(found)]


def _without_half(node: Node) -> Node:
    """The node, or where it casts to half precision one that casts to float32."""
    if node.proto.op_type != "Cast" or all(a.i not in ONNX_HALF for a in node.proto.attribute if a.name == "to"):
        return node
    proto = copy_of(node.proto)
    for attribute in (a for a in proto.attribute if a.name == "to"):
        attribute.i = onnx.TensorProto.FLOAT
    return replace(node, proto=proto)


class TwoModels:
    """Runs both models in the steps of a `Schedule`.

    ``refused`` are the pairs, (first, second), on whose first values the second model's nodes could not run.
    """

    def __init__(self, first: Side, second: Side, pairs: Sequence[Pair], engine: Engine) -> None:
        self.first, self.second, self.engine = first, second, engine
        self.refused: set[tuple[str, str]] = set()
        self._pairs: dict[str, list[Pair]] = {}
        for pair in pairs:
            self._pairs.setdefault(pair.second, []).append(pair)
        self._feeds = {p.second: p.first for p in pairs if p.is_main and self._fits(p)}
        self._doubtful = {p.second for p in pairs if p.second in self._feeds and self._may_be_wrong(p)}

    def _fits(self, pair: Pair) -> bool:
        return self.first.sketches[pair.first].may_equal(self.second.sketches[pair.second])

    def _may_be_wrong(self, pair: Pair) -> bool:
        """Whether a pair of integers, which may be a shape, is held to be one although they differ."""
        one, other = self.first.sketches[pair.first], self.second.sketches[pair.second]
        return pair.how not in ("input", "dataflow") and other.kind == "int" and one.exact != other.exact

    def run(self, inputs: tuple[Tensors, Tensors]) -> Iterator[Met | tuple[str, torch.Tensor]]:
        """Yields every pair once, and by name the values without a pair that the second model makes of the first's."""
        first = DataflowRun(self.first.flow, inputs[0], self.engine)
        free = DataflowRun(self.second.flow, inputs[1], self.engine)
        local: dict[str, torch.Tensor] = dict(inputs[1])
        yield from self._meet_given(first, free)
        last = self._schedule.last
        for number, (theirs, ours) in enumerate(self._schedule.steps):
            for name in first.advance(theirs):
                for pair in self._folded.get(name, ()):
                    value = self._first_value(name, first.live)
                    yield Met(pair, value, self._second_value(pair.second, free), None, self._nothing)
            made = free.advance(ours)
            forced, operands = self._forced(ours, made, {**local, **self._replacements(ours, first, free)}, free)
            local.update(forced)
            again = Again(self.engine, self.second, {**local, **operands}, self._feeds)
            for name in made:
                own, local_value = self.second.shown(name, made[name]), self.second.shown(name, forced[name])
                for pair in self._pairs.get(name, ()):
                    yield Met(pair, self._first_value(pair.first, first.live), own, local_value, again)
                if name not in self._pairs:
                    yield name, local_value
            for values, needed in ((first.live, last[0]), (free.live, last[1]), (local, last[1])):
                for name in [name for name in values if needed.get(name, -1) <= number]:
                    del values[name]
            for name in [name for name in local if name in self._feeds]:
                del local[name]

    def _forced(
        self, nodes: Sequence[Node], made: Tensors, operands: Tensors, free: DataflowRun
    ) -> tuple[Tensors, Tensors]:
        """What the nodes make of the first model's values, and of which operands."""

        def run(fed: Tensors) -> Tensors:
            return run_nodes(self.engine, self.second.flow, nodes, fed, list(made), self._only_fed(fed))

        read = {name for node in nodes for name in node.operands if name in operands}
        constants = self.second.flow.constants
        doubtful = sorted(read & self._doubtful, key=lambda name: (name in constants, name))
        own = {name: self._given(name, free) for name in doubtful}
        steers = any(name not in constants for name in doubtful)
        shapes = {name: made[name].shape for name in made} if steers else {}
        found, doubted = run_without_doubted(run, operands, own, shapes)
        self.refused.update((self._feeds[name], name) for name in doubted)
        return found, {**operands, **doubted}

    def _only_fed(self, operands: Tensors) -> Tensors:
        return {name: tensor for name, tensor in operands.items() if name in self._feeds}

    def _replacements(self, nodes: Iterable[Node], first: DataflowRun, free: DataflowRun) -> dict[str, torch.Tensor]:
        """What the nodes read, as far as the first model has it, in the dtypes, shapes and orders of the second."""
        flow = self.second.flow
        read = {name for node in flow.with_opaque(list(nodes)) for name in node.operands if name in self._feeds}
        return {
            name: self._given(name, free) if self._is_refused(name) else self._adapted(name, first.live)
            for name in sorted(read)
            if name not in flow.constants or not self._is_same(name)
        }

    def _is_refused(self, name: str) -> bool:
        return (self._feeds[name], name) in self.refused

    def _is_same(self, name: str) -> bool:
        return self.first.sketches[self._feeds[name]].exact == self.second.sketches[name].exact

    def _adapted(self, name: str, live: Tensors) -> torch.Tensor:
        wanted = self.second.sketches[name]
        shown = self._first_value(self._feeds[name], live).reshape(wanted.shape).to(wanted.dtype)
        return self.second.held(name, shown)

    def _first_value(self, name: str, live: Tensors) -> torch.Tensor:
        """As it is shown."""
        if name in self.first.flow.constants:
            return constant(self.first.flow, name)
        return self.first.shown(name, live[name])

    def _second_value(self, name: str, free: DataflowRun) -> torch.Tensor:
        """As it is shown."""
        return self.second.shown(name, self._given(name, free))

    def _meet_given(self, first: DataflowRun, free: DataflowRun) -> Iterator[Met]:
        """The pairs of inputs and constants of the second model with what is there from the start."""
        for name, pairs in self._pairs.items():
            for pair in pairs if name not in self.second.flow.producer else ():
                if pair.first not in self.first.flow.producer:
                    value = self._first_value(pair.first, first.live)
                    yield Met(pair, value, self._second_value(name, free), None, self._nothing)

    def _given(self, name: str, free: DataflowRun) -> torch.Tensor:
        return constant(self.second.flow, name) if name in self.second.flow.constants else free.live[name]

    @cached_property
    def _schedule(self) -> Schedule:
        return Schedule(self.first, self.second, self._pairs, self._feeds)

    @cached_property
    def _nothing(self) -> Again:
        return Again(self.engine, self.second, {}, ())

    @cached_property
    def _folded(self) -> Mapping[str, list[Pair]]:
        """By result of the first model, its pairs with what the second has from the start."""
        found: dict[str, list[Pair]] = {}
        for pair in (pair for pairs in self._pairs.values() for pair in pairs):
            if pair.second not in self.second.flow.producer and pair.first in self.first.flow.producer:
                found.setdefault(pair.first, []).append(pair)
        return found
