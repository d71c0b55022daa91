"""Which values of two models hold the same, as far as their content tells."""

from __future__ import annotations

from collections.abc import Set

from dort_compare.align.content import ContentIndex, tolerance
from dort_compare.align.sides import Side


class Nearness:
    """Holds values of the second model against those of the first, but for pairs that are ``refused``."""

    def __init__(self, first: Side, second: Side, refused: Set[tuple[str, str]]) -> None:
        self._sketches = first.sketches, second.sketches
        self._halves = first.halves(), second.halves()
        self._any_halves = any(self._halves)
        self._refused = refused
        self._index = ContentIndex(first.sketches, first.values())

    def is_near(self, first: str, second: str, *, exact: bool = False) -> bool:
        """Whether two values may be one; ``exact`` as of ``tolerance``."""
        one, other = self._sketches[0][first], self._sketches[1][second]
        halved = first in self._halves[0] or second in self._halves[1]
        return one.is_near(other, tolerance(halved=halved, exact=exact))

    def near(self, name: str, *, exact: bool = False) -> list[str]:
        """Values of the first model with the content of ``name``, the nearest first."""
        found = self._index.near(self._sketches[1][name], tolerance(halved=self._any_halves, exact=exact))
        return [a for a in found if (a, name) not in self._refused and self.is_near(a, name, exact=exact)]
