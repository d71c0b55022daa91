"""The ONNX nodes of each FX node on the operands of the reference."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Mapping, Sequence

import torch

from dort_compare.errors import ExecutionError
from dort_compare.trace.casts import cast_to, computing
from dort_compare.trace.parts import Parts

Values = dict[str, torch.Tensor | ExecutionError]
Reads = dict[int, set[str]]
"""By the place of a node in the model, the names that it reads of the reference."""


class LocalRun:
    """Computes each of the ``targets``, values that stand for FX nodes, in their order, from the reference's values of
    those before.

    ``give`` takes the reference's values; each is kept until the last target that reads it has been computed.
    """

    def __init__(self, parts: Parts, inputs: Mapping[str, torch.Tensor], targets: Sequence[str]) -> None:
        self._parts = parts
        self._given = dict(inputs)
        self._places = dict.fromkeys(inputs, -1) | {target: i for i, target in enumerate(dict.fromkeys(targets))}
        self._reads = {target: self._reads_for(target) for target, i in self._places.items() if i >= 0}
        self._operands = {target: set().union(*reads.values()) for target, reads in self._reads.items()}
        self._readers = Counter(name for operands in self._operands.values() for name in operands)

    def _reads_for(self, target: str) -> Reads:
        """What the nodes on the way to ``target`` read of the reference: its values of the targets before.

        What one call returns besides, such as a mean, may come later and yet be what its nodes go through.
        """
        place = self._places[target]
        nodes = self._parts.between([target], lambda name: self._places.get(name, place) < place)
        return {i: {n for n in self._parts.reads[i] if self._places.get(n, place) < place} for i in nodes}

    def nodes(self, target: str) -> list[int]:
        """The places in the model, in order, of the nodes that compute ``target``."""
        return sorted(self._reads[target])

    def goes_in_steps(self, target: str) -> bool:
        """Whether several nodes compute ``target``, each of which rounds what it makes."""
        return len(computing(self._parts.nodes[i].op_type for i in self._reads[target])) > 1

    def cast_to(self, target: str) -> dict[str, torch.dtype]:
        """Of what the nodes of ``target`` read of the reference, what all of them cast to one dtype, and to which."""
        return cast_to((self._parts.nodes[i], names) for i, names in self._reads[target].items())

    def give(self, name: str, value: torch.Tensor) -> None:
        """Takes the reference's value of the ONNX value ``name``."""
        if self._readers[name]:
            self._given[name] = value

    def operands(self, target: str) -> dict[str, torch.Tensor]:
        """The reference's values that the nodes of ``target`` read."""
        return {name: self._given[name] for name in self._operands[target] if name in self._given}

    def values(self, targets: Sequence[str], repeats: int = 1) -> list[Values]:
        """What the nodes of ``targets`` make of the values given, as often as ``repeats`` says.

        Where ONNX Runtime fails on the operands of one target, its place holds the error.
        """
        groups = self._groups(targets)
        found = _together([self._computed(group, reads, repeats) for group, reads in groups], repeats)
        for target in targets:
            self._readers.subtract(self._operands[target])
        for name in [name for name in self._given if self._readers[name] <= 0]:
            del self._given[name]
        return found

    def _groups(self, targets: Sequence[str]) -> list[tuple[list[str], Reads]]:
        """Targets that go together, with what each node reads of the reference: a node that is on the way to two may
        have to read another value for the one than for the other."""
        groups: list[tuple[list[str], Reads]] = []
        for target in targets:
            own = self._reads[target]
            fitting = (group for group in groups if all(group[1].get(i, reads) == reads for i, reads in own.items()))
            group = next(fitting, None)
            if group is None:
                groups.append(group := ([], {}))
            group[0].append(target)
            group[1].update(own)
        return groups

    def _computed(self, targets: Sequence[str], reads: Reads, repeats: int) -> list[Values]:
        try:
            return [dict(run) for run in self._parts.run(sorted(reads), targets, self._given, reads, repeats)]
        except ExecutionError as problem:
            if len(targets) == 1:
                return [{targets[0]: problem}] * repeats
            return _together([self._computed([t], self._reads[t], repeats) for t in targets], repeats)


def _together(runs: Sequence[Sequence[Values]], repeats: int) -> list[Values]:
    """What several models computed, in each repeat, as if one had."""
    return [dict(ChainMap(*(run[i] for run in runs))) for i in range(repeats)]
