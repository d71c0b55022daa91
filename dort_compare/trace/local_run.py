"""The ONNX nodes of each FX node on the operands of the reference."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Callable, Mapping, Sequence

import torch

from dort_compare.errors import ExecutionError
from dort_compare.trace.parts import Parts


class LocalRun:
    """Computes each of the ``targets``, values that stand for FX nodes, in their order, from the reference's values of
    those before.

    ``give`` takes the reference's values; each is kept until the last target that reads it has been computed.
    """

    def __init__(self, parts: Parts, inputs: Mapping[str, torch.Tensor], targets: Sequence[str]) -> None:
        self._parts = parts
        self._given = dict(inputs)
        self._places = dict.fromkeys(inputs, -1) | {target: i for i, target in enumerate(dict.fromkeys(targets))}
        self._nodes = {t: parts.between([t], self._is_before(i)) for t, i in self._places.items() if i >= 0}
        self._operands = {target: self._read_by(nodes, target) for target, nodes in self._nodes.items()}
        self._readers = Counter(name for operands in self._operands.values() for name in operands)

    def _is_before(self, place: int) -> Callable[[str], bool]:
        """Whether the reference's value of a name is there for the target at a place.

        What one call returns besides, such as a mean, may come later and yet be what its nodes go through.
        """
        return lambda name: self._places.get(name, place) < place

    def _read_by(self, nodes: Sequence[int], target: str) -> set[str]:
        is_before = self._is_before(self._places[target])
        return {name for i in nodes for name in self._parts.reads[i] if is_before(name)}

    def give(self, name: str, value: torch.Tensor) -> None:
        """Takes the reference's value of the ONNX value ``name``."""
        if self._readers[name]:
            self._given[name] = value

    def operands(self, target: str) -> dict[str, torch.Tensor]:
        """The reference's values that the nodes of ``target`` read."""
        return {name: self._given[name] for name in self._operands[target] if name in self._given}

    def values(self, targets: Sequence[str], repeats: int = 1) -> list[dict[str, torch.Tensor | ExecutionError]]:
        """What the nodes of ``targets`` make of the values given, as often as ``repeats`` says.

        Where ONNX Runtime fails on the operands of one target, its place holds the error.
        """
        found = self._values(targets, repeats)
        for target in targets:
            self._readers.subtract(self._operands[target])
        for name in [name for name in self._given if self._readers[name] <= 0]:
            del self._given[name]
        return found

    def _values(self, targets: Sequence[str], repeats: int) -> list[dict[str, torch.Tensor | ExecutionError]]:
        groups = [self._computed(group, apart, repeats) for group, apart in self._groups(targets)]
        return [dict(ChainMap(*runs)) for runs in zip(*groups, strict=True)] if groups else [{}] * repeats

    def _groups(self, targets: Sequence[str]) -> list[tuple[list[str], dict[int, set[str]]]]:
        """Targets that go together, with what each node reads of the reference: a node that is on the way to two may
        have to read another value for the one than for the other."""
        groups: list[tuple[list[str], dict[int, set[str]]]] = []
        for target in targets:
            is_before = self._is_before(self._places[target])
            own = {i: set(filter(is_before, self._parts.reads[i])) for i in self._nodes[target]}
            fitting = (group for group in groups if all(group[1].get(i, reads) == reads for i, reads in own.items()))
            group = next(fitting, None)
            if group is None:
                groups.append(group := ([], {}))
            group[0].append(target)
            group[1].update(own)
        return groups

    def _computed(
        self, targets: Sequence[str], apart: Mapping[int, set[str]], repeats: int
    ) -> list[dict[str, torch.Tensor | ExecutionError]]:
        try:
            return [dict(run) for run in self._parts.run(sorted(apart), targets, self._given, apart, repeats)]
        except ExecutionError as problem:
            if len(targets) == 1:
                return [{targets[0]: problem}] * repeats
            alone = [self._values([target], repeats) for target in targets]
            return [dict(ChainMap(*runs)) for runs in zip(*alone, strict=True)]
