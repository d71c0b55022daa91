"""Random numbers that two models draw: whether they went into both values of a pair, and from one distribution."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from onnx import numpy_helper

from dort_compare.align.expressions import attributes_in_full
from dort_compare.align.pair import Pair
from dort_compare.align.sides import Side
from dort_compare.randomness import may_draw

_PARAMETERS: Mapping[str, Sequence[str]] = {"RandomNormal": ("mean", "scale"), "RandomUniform": ("low", "high")}
"""The attributes that tell what an operator draws from."""
_RATIO = 0.5
"""That of a Dropout which is not told one."""
_SAME = 2.0**-8
"""So near are parameters that are rounded to half precision."""


class Chance(NamedTuple):
    """What random numbers do to a pair: ``is_drawn``, whether they went into the second value since the last paired
    values, so that it is another in each run; and why it departs, if it does, in words: "" where both are drawn and
    nothing says from what else."""

    is_drawn: bool
    departure: str


class Draws:
    """What both models draw at random, given the values that are paired."""

    def __init__(self, first: Side, second: Side, paired: tuple[Collection[str], Collection[str]]) -> None:
        self._sides = first, second
        self._drawn = _drawn(first, paired[0]), _drawn(second, paired[1])

    def chance(self, pair: Pair) -> Chance:
        drawn = pair.first in self._drawn[0], pair.second in self._drawn[1]
        if not any(drawn):
            return Chance(False, "")
        if not all(drawn):
            return Chance(drawn[1], f"random numbers that the {'first' if drawn[0] else 'second'} alone draws")
        first, second = _distribution(self._sides[0], pair.first), _distribution(self._sides[1], pair.second)
        is_other = first is not None and second is not None and not first.is_like(second)
        return Chance(True, f"drawn by {second} instead of {first}" if is_other else "")


class _Distribution(NamedTuple):
    operator: str
    parameters: Mapping[str, float]

    def is_like(self, other: _Distribution) -> bool:
        """Whether both are one, parameters that are rounded to half precision too."""
        pairs = zip(self.parameters.values(), other.parameters.values(), strict=False)
        return self.operator == other.operator and all(math.isclose(a, b, rel_tol=_SAME) for a, b in pairs)

    def __str__(self) -> str:
        words = ", ".join(f"{name} {value:.6g}" for name, value in self.parameters.items())
        return f"{self.operator} ({words})" if words else self.operator


def _distribution(side: Side, name: str) -> _Distribution | None:
    """What the node of a value draws from; None where it only reads draws, or is told when it runs."""
    node, constants = side.node(name), side.flow.constants
    if node is None or not may_draw(node.proto, constants):
        return None
    operator = node.proto.op_type.removesuffix("Like")
    if operator != "Dropout":
        given = attributes_in_full(node, side.flow)
        return _Distribution(operator, {name: given[name].f for name in _PARAMETERS.get(operator, ())})
    ratio = node.operands[1]
    if ratio and ratio not in constants:
        return None
    return _Distribution(operator, {"ratio": numpy_helper.to_array(constants[ratio]).item() if ratio else _RATIO})


def _drawn(side: Side, paired: Collection[str]) -> frozenset[str]:
    """The values that random numbers went into since the last paired values."""
    found = set[str]()
    for node in side.flow.nodes:
        is_fed = any(name in found and name not in paired for name in node.operands)
        if is_fed or may_draw(node.proto, side.flow.constants):
            found.update(node.results)
    return frozenset(found)
