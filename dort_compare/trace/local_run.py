"""The ONNX nodes of each FX node on the operands of the reference."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Mapping, Sequence

import torch

from dort_compare.errors import ExecutionError
from dort_compare.trace.parts import Parts


class LocalRun:
    """Computes each of the ``targets``, values that stand for FX nodes, from the reference's values of all others.

    ``given`` takes the reference's values; each is kept until the last target that reads it has been computed.
    """

    def __init__(self, parts: Parts, inputs: Mapping[str, torch.Tensor], targets: Sequence[str]) -> None:
        self._parts = parts
        self._given = dict(inputs)
        self._known = frozenset({*inputs, *targets})
        self._nodes = {target: parts.between([target], self._known.__contains__) for target in dict.fromkeys(targets)}
        self._operands = {target: self._read_by(nodes) for target, nodes in self._nodes.items()}
        self._readers = Counter(name for operands in self._operands.values() for name in operands)

    def _read_by(self, nodes: Sequence[int]) -> set[str]:
        return {name for i in nodes for name in self._parts.reads[i] if name in self._known}

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
        nodes = sorted({i for target in targets for i in self._nodes[target]})
        try:
            return [dict(run) for run in self._parts.run(nodes, targets, self._given, self._known, repeats)]
        except ExecutionError as problem:
            if len(targets) == 1:
                return [{targets[0]: problem}] * repeats
            alone = [self._values([target], repeats) for target in targets]
            return [dict(ChainMap(*runs)) for runs in zip(*alone, strict=True)]
