"""The ONNX execution of a graph on its own values, a few at a time, each freed after its last reader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import torch

from dort_compare.trace.parts import Parts


class OnnxRun:
    """Computes the values ``wanted`` of a model in whatever order they are asked for, each once.

    Every value is kept until its last reader has run; a wanted one until it has been asked for.
    """

    def __init__(self, parts: Parts, inputs: Mapping[str, torch.Tensor], wanted: Collection[str]) -> None:
        self._parts = parts
        self._alive = dict(inputs)
        live = parts.between(wanted, self._alive.__contains__)
        self._readers = Counter(name for i in live for name in set(parts.reads[i]))
        self._readers.update(wanted)
        self._done: set[int] = set()

    def values(self, names: Sequence[str]) -> dict[str, torch.Tensor]:
        """The tensors of the wanted ``names``. Raises ExecutionError where ONNX Runtime fails."""
        missing = [name for name in names if name not in self._alive]
        nodes = self._whole(self._parts.between(missing, self._alive.__contains__))
        self._done.update(nodes)
        made = dict.fromkeys(name for i in nodes for name in self._parts.nodes[i].output if name)
        self._readers.subtract(name for i in nodes for name in set(self._parts.reads[i]))
        kept = [name for name in made if self._readers[name] > 0 and name not in self._parts.untensored]
        (computed,) = self._parts.run(nodes, kept, self._alive)
        self._alive.update(computed)
        found = {name: self._alive[name] for name in names}
        self._readers.subtract(names)
        for name in [name for name in self._alive if self._readers[name] <= 0]:
            del self._alive[name]
        return found

    def _whole(self, nodes: list[int]) -> list[int]:
        """``nodes`` with the readers of what is no tensor, which cannot be handed on."""
        while True:
            made = {name for i in nodes for name in self._parts.nodes[i].output} & self._parts.untensored
            readers = [i for i, reads in enumerate(self._parts.reads) if made.intersection(reads)] if made else []
            further = [i for i in readers if i not in nodes and i not in self._done]
            if not further:
                return nodes
            outputs = [name for i in (*nodes, *further) for name in self._parts.nodes[i].output if name]
            nodes = self._parts.between(outputs, self._alive.__contains__)
