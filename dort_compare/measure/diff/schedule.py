"""In which steps two models run side by side, and how long their values are needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from dort_compare.align.pair import Pair
from dort_compare.align.sides import Side
from dort_compare.trace.dataflow import Node
from dort_compare.trace.dataflow_run import BYTES, NODES


class Schedule:
    """Steps, ordered so that the values of a pair are alive together and few others are.

    ``pairs`` are by the value of the second model; ``feeds`` says which value of the first takes its place there.
    """

    def __init__(
        self, first: Side, second: Side, pairs: Mapping[str, Sequence[Pair]], feeds: Mapping[str, str]
    ) -> None:
        self.first, self.second = first, second
        self._pairs, self._feeds = pairs, feeds

    @cached_property
    def steps(self) -> list[tuple[list[Node], list[Node]]]:
        """The nodes of both models that run together."""
        events = [(node.index, 0, node) for node in self.first.flow.nodes]
        events += [(self._times[node.index], 1, node) for node in self.second.flow.nodes]
        events.sort(key=lambda event: (event[0], event[1], event[2].index))
        steps: list[tuple[list[Node], list[Node]]] = []
        room = 0
        for _, which, node in events:
            size = sum(s.nbytes for n in node.results if (s := (self.first, self.second)[which].sketches.get(n)))
            if not steps or room < size or len(steps[-1][which]) >= NODES:
                steps.append(([], []))
                room = BYTES
            room -= size
            steps[-1][which].append(node)
        return steps

    @cached_property
    def last(self) -> tuple[dict[str, int], dict[str, int]]:
        """By value, the step after which it is not needed."""
        first: dict[str, int] = {}
        second: dict[str, int] = {}
        for number, (theirs, ours) in enumerate(self.steps):
            for node in theirs:
                first.update(dict.fromkeys((*self.first.flow.reads(node), *node.results), number))
            for node in ours:
                read = self.second.flow.reads(node)
                second.update(dict.fromkeys((*read, *node.results), number))
                first.update({self._feeds[name]: number for name in read if name in self._feeds})
                first.update({pair.first: number for n in node.results for pair in self._pairs.get(n, ())})
        return first, second

    @cached_property
    def _times(self) -> list[int]:
        """By node of the second model, the node of the first after which it runs."""
        flow, times = self.second.flow, [-1] * len(self.second.flow.nodes)
        for node in flow.nodes:
            waits = [times[flow.producer[name][0].index] for name in node.operands if name in flow.producer]
            waits += [self.first.made_at(self._feeds[name]) for name in node.operands if name in self._feeds]
            waits += [self.first.made_at(pair.first) for name in node.results for pair in self._pairs.get(name, ())]
            times[node.index] = max(waits, default=-1)
        for node in reversed(flow.nodes):
            readers = [times[reader.index] for name in node.results for reader, _ in flow.readers.get(name, ())]
            if readers and not any(name in self._pairs for name in node.results):
                times[node.index] = max(times[node.index], min(readers))
        return times
