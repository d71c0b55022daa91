"""Pairs two models round by round: what departs says which pairs were wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dort_compare.align.content import Sketch, sketch
from dort_compare.align.inputs import Inputs
from dort_compare.align.pair import Pair
from dort_compare.align.pairing import Pairing
from dort_compare.align.returned import unpaired_counterparts
from dort_compare.align.sides import Side
from dort_compare.measure.diff.refuted_pairs import WEAK, effectless, misleading, with_all_like_it
from dort_compare.measure.diff.two_models import Met, TwoModels
from dort_compare.measure.diff.unfolded import unfolded
from dort_compare.measure.diff.value_rows import PairJudge, ValueRow
from dort_compare.trace.engine import Engine

_ROUNDS = 8
_TRIALS = 4
"""So many at most: a round costs a run of the first model and two of the second."""

Refused = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Round:
    """The rows of the pairs of one round, and what the next one is to know: which pairs are ``refused``, which values
    of the second model are ``presuming`` a pair that failed, and what its values without a pair are where they are
    ``forced`` on the first one's operands."""

    rows: tuple[ValueRow, ...] = ()
    refused: Refused = frozenset()
    presuming: frozenset[str] = frozenset()
    forced: Mapping[str, Sketch] = field(default_factory=dict)

    @property
    def departing(self) -> frozenset[str]:
        """The second model's values that depart."""
        return frozenset(row.pair.second for row in self.rows if row.status == "diverges")


class Rounds:
    """Pairs the values of two models and holds them against each other, until the pairs stay.

    ``fed`` are the inputs of both; ``told`` hears of each round that begins.
    """

    def __init__(self, sides: tuple[Side, Side], engine: Engine, fed: Inputs, told: Callable[[str], None]) -> None:
        self._sides, self._engine, self._fed, self._told = sides, engine, fed, told
        self._number = 0

    def rows(self) -> tuple[ValueRow, ...]:
        """Those of the pairs that hold: of two steps that stand in one place but are no pair, neither is a cause.

        A weak pair that departs is tried for that, first one of two operators: it is none if without it some others
        still depart, and no more than before.
        """
        found = self._settled(Round())
        weak = [row for row in found.rows if row.status == "diverges" and row.pair.how in WEAK]
        for row in sorted(weak, key=lambda row: row.op_types[0] == row.op_types[1])[:_TRIALS]:
            if row.pair.second in found.departing:
                refused = found.refused.union(with_all_like_it(*self._sides, row))
                without = self._settled(replace(found, refused=refused))
                found = without if frozenset() < without.departing < found.departing else found
        return found.rows

    def _settled(self, found: Round) -> Round:
        """The rounds from ``found`` on, until the pairs stay."""
        known: frozenset[tuple[str, str]] = frozenset()
        for _ in range(_ROUNDS):
            pairs = self._pairs(found)
            names = frozenset((pair.first, pair.second) for pair in pairs)
            if names == known:
                break
            known, found = names, self._next(found, pairs)
        return found

    def _pairs(self, found: Round) -> list[Pair]:
        first, second = self._sides
        shown = replace(second, sketches={**second.sketches, **found.forced})
        kept = [row.pair for row in found.rows if _is_kept(row) and row.pair.second not in found.presuming]
        kept = [pair for pair in kept if (pair.first, pair.second) not in found.refused]
        pairs = Pairing(first, shown, self._fed.pairs, _outputs(first, shown), kept, found.refused).pairs()
        return pairs + unpaired_counterparts(first, second, pairs)

    def _next(self, before: Round, pairs: Sequence[Pair]) -> Round:
        self._number += 1
        self._told(f"values paired and compared, round {self._number}")
        first, second = self._sides
        judge, rows, forced = PairJudge(first, second, pairs), [], {}
        both = TwoModels(first, second, pairs, self._engine)
        for found in both.run(self._fed.values):
            if isinstance(found, Met):
                rows.append(judge.row(found))
            else:
                forced[found[0]] = sketch(found[1])
        place = {pair: i for i, pair in enumerate(pairs)}
        rows = [row for row in rows if (row.pair.first, row.pair.second) not in both.refused]
        rows.sort(key=lambda row: place[row.pair])
        refuted = effectless(first, second, rows) | misleading(first, second, rows) | unfolded(first, second, rows)
        presuming = second.flow.behind(other for _, other in both.refused)
        return Round(tuple(rows), before.refused | both.refused | refuted, frozenset(presuming), forced)


def _is_kept(row: ValueRow) -> bool:
    """Whether later pairs rest on it: what was computed behind it presumes it."""
    return row.pair.how == "place" or (row.status == "diverges" and row.pair.how in ("dataflow", "constant"))


def _outputs(first: Side, second: Side) -> list[tuple[str, str]]:
    """Outputs by name, then in order among those of one size."""
    ours = [name for name in second.flow.outputs if name in second.sketches]
    theirs = [name for name in first.flow.outputs if name in first.sketches]
    pairs = [(name, name) for name in theirs if name in ours and _is_like(first, second, name, name)]
    taken = {name for name, _ in pairs}
    ours = [name for name in ours if name not in taken]
    for name in (name for name in theirs if name not in taken):
        like = [other for other in ours if _is_like(first, second, name, other)]
        if like:
            ours.remove(like[0])
            pairs.append((name, like[0]))
    return pairs


def _is_like(first: Side, second: Side, one: str, other: str) -> bool:
    return first.sketches[one].may_equal(second.sketches[other])
