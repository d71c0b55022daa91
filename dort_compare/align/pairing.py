"""Pairs the values of two models that share no names, by dataflow and content."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence, Set

from dort_compare.align.content import tolerance
from dort_compare.align.nearness import Nearness
from dort_compare.align.numbered import Numbered, Numbers
from dort_compare.align.pair import How, Pair
from dort_compare.align.places import Places
from dort_compare.align.sides import Side


class Pairing:
    """Finds for values of the second model their partners in the first; several may have the same.

    ``inputs`` are pairs to start from, (first, second); ``outputs`` those to fall back on; ``kept`` are pairs of an
    earlier pairing that hold, ``refused`` those that have been tried and found wrong.
    """

    def __init__(
        self,
        first: Side,
        second: Side,
        inputs: Iterable[tuple[str, str]],
        outputs: Sequence[tuple[str, str]],
        kept: Iterable[Pair] = (),
        refused: Set[tuple[str, str]] = frozenset(),
    ) -> None:
        numbers = Numbers()
        self.first, self.second = Numbered(first, numbers), Numbered(second, numbers)
        self.found: dict[str, Pair] = {}
        self._numbers, self._refused = numbers, refused
        self._claimants: dict[str, str] = {}
        self._inputs, self._outputs = list(inputs), list(outputs)
        self.first.number_all(name for name, _ in self._inputs)
        self._bearers = self.first.bearers()
        self._content = Nearness(first, second, refused)
        self._order = {name: i for i, name in enumerate(second.values())}
        self._places = Places(self.first, self.second, {b: a for a, b in outputs}, self.found, self._claimants)
        self._pair_all(kept)

    def _pair_all(self, kept: Iterable[Pair]) -> None:
        """Pairs the second model's values in order of execution, then what stands between pairs, until nothing more is
        found."""
        side = self.second.side
        for first, second in self._inputs:
            self._pair(first, second, "input")
        for pair in kept:
            self._pair(pair.first, pair.second, pair.how)
        for name in (*side.flow.inputs, *side.flow.constants):
            if name in side.sketches and name not in self.found:
                self._resolve_constant(name)
        for node in side.flow.nodes:
            for name in node.results:
                if name in side.sketches and name not in self.found:
                    self._resolve(name)
        for pair in list(self.found.values()):
            if pair.how == "content" and not self._content.is_near(pair.first, pair.second, exact=True):
                self._mend_operands(pair.second)
        self._fill_places()
        for first, second in self._outputs:
            if self._is_free(first, second):
                self._pair(first, second, "output")
                self._follow([second])
        self._fill_places()

    def _resolve_constant(self, name: str) -> None:
        """Pairs a constant with an equal one: one rounding apart where both are floats of different dtypes."""
        near, sketches = self._content.near(name, exact=True), self.first.side.sketches
        if not near:
            return
        first = self._best([a for a in near if sketches[a].exact == sketches[near[0]].exact], name)
        own, other = self.second.side.sketches[name], sketches[first]
        if own.exact == other.exact or own.dtype != other.dtype or self.first.side.node(first):
            self._pair(first, name, "constant")

    def _resolve(self, name: str) -> bool:
        """Pairs a result by the expression that makes it, else by its content; whether that was possible."""
        number = self.second.expression(name)
        same = [a for a in self._bearing(number, name) if (a, name) not in self._refused]
        if same:
            agreeing = [a for a in same if self._content.is_near(a, name)]
            own, sketches = self.second.side.sketches[name], self.first.side.sketches
            equal = [a for a in agreeing if sketches[a].is_near(own, tolerance(halved=False, exact=True))]
            self._pair(self._best(equal or agreeing or same, name), name, "dataflow")
        elif near := self._content.near(name, exact=True):
            telling = self.second.side.sketches[name].is_telling
            self._pair(self._best(near, name), name, "content" if telling else "guess")
        elif self.second.side.sketches[name].is_telling and (near := self._content.near(name)):
            self._pair(self._best(near, name), name, "content")
        elif number is not None and self.second.is_passage(name):
            self.second.of[name] = number
        return name in self.found

    def _bearing(self, number: int | None, name: str) -> Sequence[str]:
        """Values of the first model with a number; for a view that it has not, what is shown."""
        if number is None:
            return ()
        known = self._bearers.get(number, ())
        return known or (self._bearers.get(self._numbers.root(number), ()) if self.second.is_passage(name) else ())

    def _pair(self, first: str, second: str, how: How) -> None:
        self.found[second] = Pair(first, second, how)
        shapes = (self.first.side.sketches[first].shape, self.second.side.sketches[second].shape)
        number = self.first.of[first]
        self.second.of[second] = number if shapes[0] == shapes[1] else self._numbers.view(number, *shapes)
        if self._is_claim(first, second):
            self._claimants.setdefault(first, second)

    def _is_claim(self, first: str, second: str) -> bool:
        """Whether a pair leaves no room for another: constants and copies of them are shared."""
        return first not in self.first.side.flow.constants and not self._places.is_copy(second)

    def _best(self, candidates: Sequence[str], name: str) -> str:
        """The one that most speaks for, the nearest or first where several are alike."""
        return max(candidates, key=lambda a: self._places.likeness(a, name))

    def _fill_places(self) -> None:
        """Pairs what has no partner yet by its place, earliest first, and follows from there."""
        waiting = [(self._order[name], name) for name in self._order if name not in self.found]
        heapq.heapify(waiting)
        queued = {name for _, name in waiting}
        while waiting:
            _, name = heapq.heappop(waiting)
            queued.discard(name)
            if name in self.found:
                continue
            place = self._places.best(name, self._refused)
            if place is None:
                continue
            self._pair(place, name, "place")
            changed = self._follow([name]) | self._mend_operands(name)
            for other in self._neighbours(changed | {name}):
                if other not in self.found and other not in queued:
                    queued.add(other)
                    heapq.heappush(waiting, (self._order[other], other))

    def _follow(self, names: Iterable[str]) -> set[str]:
        """Resolves the readers of values that have just been paired, and theirs; returns what was paired."""
        flow, paired = self.second.side.flow, set(names)
        todo = [(self._order[name], name) for name in paired]
        heapq.heapify(todo)
        while todo:
            _, name = heapq.heappop(todo)
            for node, _ in flow.readers.get(name, ()):
                for result in node.results:
                    if result in self._order and result not in self.found and self._resolve(result):
                        paired.add(result)
                        heapq.heappush(todo, (self._order[result], result))
        return paired

    def _mend_operands(self, name: str) -> set[str]:
        """Of a node paired by place, pairs anew the operands of which no or only a weak pair is known, and theirs."""
        changed, todo = set(), [name]
        while todo:
            place = todo.pop()
            for first, second in self._places.mismatched(self.found[place].first, place):
                if self._is_free(first, second) and second not in changed:
                    self._forget_copies(second)
                    self._pair(first, second, "place")
                    changed |= self._follow([second])
                    todo.append(second)
        return changed

    def _forget_copies(self, name: str) -> None:
        """Undoes the pairs of what only shows a value that is about to be paired anew."""
        todo = [name]
        while todo:
            for node, slot in self.second.side.flow.readers.get(todo.pop(), ()):
                copy = node.results[0]
                if slot == 0 and self.second.is_passage(copy):
                    self.found.pop(copy, None)
                    todo.append(copy)

    def _is_free(self, first: str, second: str) -> bool:
        """Whether two values may be paired after all that has been paired already."""
        if (first, second) in self._refused:
            return False
        return second not in self.found or (first not in self._claimants and self._places.is_weak(second))

    def _neighbours(self, names: Iterable[str]) -> set[str]:
        flow, found = self.second.side.flow, set[str]()
        for name in names:
            node = self.second.side.node(name)
            found.update(node.operands if node else ())
            for reader, _ in flow.readers.get(name, ()):
                found.update(reader.results)
                found.update(reader.operands)
        return {name for name in found if name in self._order}

    def pairs(self) -> list[Pair]:
        """Every pair, those of the second model's values in order, then the first model's values that are copies; what
        lies behind a cast that loses digits is none."""
        held = {name: (number, self.first.side.sketches[name].exact) for name, number in self.first.of.items()}
        taken = {pair.first for pair in self.found.values()}
        partner = {held[pair.first]: pair.second for pair in self.found.values()}
        copies = [
            Pair(name, partner[content], "copy")
            for name, content in held.items()
            if name not in taken and content in partner
        ]
        ordered = sorted(self.found.values(), key=lambda pair: self._order[pair.second])
        return [*ordered, *(pair for pair in copies if self._content.is_near(pair.first, pair.second))]
