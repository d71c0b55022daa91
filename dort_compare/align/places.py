"""Where a value stands: what it is made from and who reads it; in one place stands one value, right or wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from dort_compare.align.expressions import COMMUTATIVE, VIEWS, operator_of
from dort_compare.align.numbered import Numbered
from dort_compare.align.pair import Pair
from dort_compare.trace.dataflow import Node

_MANY = 16
"""Readers looked at: a value that more nodes read says little about any of them."""
Reading = tuple[object, int, tuple[int | None, ...]]


class Places:
    """Compares the places of values of two models, of which the second is paired in part.

    ``outputs``: by output of the second model, the output of the first in the same position. ``found`` and
    ``claimants`` are those of the pairing, and change while it goes on.
    """

    def __init__(
        self,
        first: Numbered,
        second: Numbered,
        outputs: Mapping[str, str],
        found: Mapping[str, Pair],
        claimants: Mapping[str, str],
    ) -> None:
        self.first, self.second = first, second
        self._outputs, self._found, self._claimants = outputs, found, claimants
        self._readers: dict[int | None, list[Node]] = {}
        for name in first.of:
            readers = (node for node, _ in first.side.flow.readers.get(name, ()))
            self._readers.setdefault(first.root(name), []).extend(
                node for node in readers if not first.is_passage(node.results[0])
            )

    def likeness(self, first: str, second: str) -> float:
        """How much speaks for two values of equal content, by what makes and reads them."""
        one, other = self.first.side.sketches[first], self.second.side.sketches[second]
        same = (one.shape == other.shape) + (one.dtype == other.dtype) / 2 + (first not in self._claimants) / 4
        node, mine = self.first.side.node(first), self.second.side.node(second)
        if node is None or mine is None:
            return same + (node is mine)
        return same + 2 * (operator_of(node) == operator_of(mine)) + self._operands(node, mine)

    def best(self, second: str, refused: Set[tuple[str, str]]) -> str | None:
        """The value of the first model that stands where ``second`` does; None where none does for good reasons."""
        scored = [
            (score, first)
            for first in self._candidates(second)
            if (first, second) not in refused and (score := self._score(first, second)) > 0
        ]
        if not scored:
            return None
        scored.sort(key=lambda pair: -pair[0])
        if (
            len(scored) > 1
            and scored[0][0] == scored[1][0]
            and self.first.of[scored[0][1]] != self.first.of[scored[1][1]]
        ):
            return None
        return scored[0][1]

    def mismatched(self, first: str, second: str) -> Iterator[tuple[str, str]]:
        """The operands, (first, second), in which two nodes of the same operator differ."""
        node, mine = self.first.side.node(first), self.second.side.node(second)
        if node is None or mine is None or operator_of(node) != operator_of(mine):
            return
        left, right = list(node.operands), list(mine.operands)
        if node.proto.op_type in COMMUTATIVE:
            left, right = self._unshared(left, right)
        if len(left) != len(right):
            return
        for one, other in zip(left, right, strict=True):
            both = one in self.first.side.sketches and other in self.second.side.sketches
            if both and self.first.root(one) != self.second.root(other):
                both_sources = self._unviewed(one), self._source(other)
                if self._alike(*both_sources):
                    yield both_sources

    def _unviewed(self, first: str) -> str:
        """What a value of the first model shows, where it only shows it in another shape."""
        while self.first.side.op_type(first) in VIEWS and self.first.is_passage(first):
            first = self.first.side.flow.producer[first][0].operands[0]
        return first

    def is_copy(self, second: str) -> bool:
        """Whether a value has the elements of an operand of the node that makes it."""
        node = self.second.side.node(second)
        if node is None:
            return False
        root = self.second.root(second)
        return self.second.is_passage(second) or any(root == self.second.root(name) for name in node.operands if name)

    def is_weak(self, second: str) -> bool:
        """Whether another pair may replace that of a value: a guess, a copy, a second partner of what has one."""
        pair = self._found[second]
        if pair.how in ("input", "constant"):
            return False
        return pair.how == "guess" or self.is_copy(second) or self._claimants.get(pair.first) != second

    def _source(self, second: str) -> str:
        """Where a value, or that of which it is a copy, was first made in a way that may be wrong."""
        chain = [second]
        while self.second.is_passage(chain[-1]):
            node = self.second.side.node(chain[-1])
            assert node is not None
            before = node.operands[0]
            if before in self._found and (self.second.side.node(before) is None or not self.is_weak(before)):
                break
            chain.append(before)
        copies = [name for name in chain if self.second.side.op_type(name) in ("Identity", "Cast")]
        return (copies or chain)[-1]

    def _unshared(self, left: list[str], right: list[str]) -> tuple[list[str], list[str]]:
        numbers = [self.second.root(name) for name in right]
        rest = []
        for name in left:
            number = self.first.root(name)
            if number in numbers:
                at = numbers.index(number)
                del numbers[at], right[at]
            else:
                rest.append(name)
        return rest, right

    def _alike(self, first: str, second: str) -> bool:
        one, other = self.first.side, self.second.side
        if one.tells_dimensions(first) or other.tells_dimensions(second):
            return False
        return one.sketches[first].may_equal(other.sketches[second])

    def _candidates(self, second: str) -> Iterator[str]:
        """Free values of the first model that share an operand or a reader with ``second``."""
        seen: dict[str, None] = {}
        if second in self._outputs:
            seen[self._outputs[second]] = None
        node = self.second.side.node(second)
        if node is not None:
            slot = self.second.side.flow.producer[second][1]
            for reader in self._shared_readers(node, leave_out=""):
                seen.update(dict.fromkeys(reader.results[slot : slot + 1]))
        for reader, slot in self.second.readers(second)[:_MANY]:
            for like in self._like(reader, second):
                commutes = reader.proto.op_type in COMMUTATIVE
                seen.update(dict.fromkeys(like.operands if commutes else like.operands[slot : slot + 1]))
        sketches = self.first.side.sketches
        shown = dict.fromkeys(self._unviewed(name) for name in seen if name in sketches)
        return (name for name in shown if name not in self._claimants and self._alike(name, second))

    def _like(self, reader: Node, second: str) -> Iterator[Node]:
        """Nodes of the first model that may be ``reader``: its partner, or what reads the same other operands."""
        partners = (self._found[name].first for name in reader.results if name in self._found)
        nodes = {node.index: node for name in partners if (node := self.first.side.node(name))}
        if not nodes:
            nodes = {node.index: node for node in self._shared_readers(reader, leave_out=second)}
        return (node for node in nodes.values() if operator_of(node) == operator_of(reader))

    def _shared_readers(self, node: Node, leave_out: str) -> list[Node]:
        """Nodes of the first model that read an operand of ``node``, by the operand that fewest read."""
        numbers = [self.second.root(name) for name in node.operands if name != leave_out and name in self.second.of]
        choices = [self._readers[number] for number in numbers if self._readers.get(number)]
        fewest = min(choices, key=len, default=[])
        return fewest[: 4 * _MANY]

    def _score(self, first: str, second: str) -> float:
        """0 where the places have too little in common."""
        readers, is_firm = self._same_readers(first, second)
        node, mine = self.first.side.node(first), self.second.side.node(second)
        shared = self._operands(node, mine) if node and mine else 0.0
        same_operands = shared > 0.9 and mine is not None and len(mine.operands) > 1
        if not (readers and (shared or is_firm)) and not same_operands:
            return 0.0
        same = node is mine or bool(node and mine and operator_of(node) == operator_of(mine))
        equal = bool(same and node and mine and self.first.attributes(node) == self.second.attributes(mine))
        return 4 * readers + 3 * same + equal + 3 * shared

    def _operands(self, node: Node, mine: Node) -> float:
        """The share of operands that are the same, wherever they stand; a little less where the order differs."""
        theirs = [number for name in node.operands if (number := self.first.root(name)) is not None]
        ours = [number for name in mine.operands if (number := self.second.root(name)) is not None]
        if not theirs and not ours and not any(node.operands) and not any(mine.operands):
            return 1.0
        rest, shared = list(theirs), 0
        for number in ours:
            if number in rest:
                rest.remove(number)
                shared += 1
        in_order = theirs == ours
        most = max(sum(map(bool, each.operands)) for each in (node, mine))
        return shared / max(most, 1) - (0.0 if in_order or not shared else 0.01)

    def _same_readers(self, first: str, second: str) -> tuple[float, bool]:
        """The share of readers of ``second`` that read ``first`` too, and whether one of them tells it from others."""
        ours = list(self._readings(self.second, second))
        theirs = list(self._readings(self.first, first))
        is_output = self._are_outputs(first, second)
        if not ours:
            return float(is_output), is_output
        matches = [reading for reading in ours if any(_agree(reading, other) for other in theirs)]
        firm = any(any(number is not None for number in reading[2]) for reading in matches)
        paired = any(self._reader_paired(first, second))
        return (len(matches) + is_output) / (len(ours) + is_output), firm or is_output or paired

    def _are_outputs(self, first: str, second: str) -> bool:
        """Whether the two are outputs in the same position, in whatever shape."""
        partner = self._outputs.get(second)
        for shown in () if partner else self._shown(second):
            partner = partner or self._outputs.get(shown)
        return partner is not None and self.first.root(partner) == self.first.root(first)

    def _shown(self, second: str) -> Iterator[str]:
        """Another shape or dtype of a value, one at a time."""
        for node, slot in self.second.side.flow.readers.get(second, ())[:_MANY]:
            if slot == 0 and self.second.is_passage(node.results[0]):
                yield node.results[0]
                yield from self._shown(node.results[0])

    def _reader_paired(self, first: str, second: str) -> Iterator[bool]:
        readers = {node.index for node, _ in self.first.readers(first)[:_MANY]}
        for node, _ in self.second.readers(second)[:_MANY]:
            for name in node.results:
                partner = self._found.get(name)
                made = self.first.side.node(partner.first) if partner else None
                yield made is not None and made.index in readers

    def _readings(self, numbered: Numbered, name: str) -> Iterator[Reading]:
        for node, slot in numbered.readers(name)[:_MANY]:
            others = [numbered.root(o) for i, o in enumerate(node.operands) if i != slot]
            commutes = node.proto.op_type in COMMUTATIVE
            if commutes:
                others.sort(key=lambda number: -1 if number is None else number)
            yield operator_of(node), -1 if commutes else slot, tuple(others)


def _agree(reading: Reading, other: Reading) -> bool:
    """Whether two readings are alike, as far as the operands beside are known."""
    if reading[:2] != other[:2] or len(reading[2]) != len(other[2]):
        return False
    return all(a is None or b is None or a == b for a, b in zip(reading[2], other[2], strict=True))
