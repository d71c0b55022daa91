"""Random numbers that two models draw: whether they went into both values of a pair, and from one distribution."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from onnx import numpy_helper

from dort_compare.align.pair import Pair
from dort_compare.align.sides import Side
from dort_compare.randomness import may_draw

_PARAMETERS: Mapping[str, Mapping[str, float]] = {
    "RandomNormal": {"mean": 0.0, "scale": 1.0},
    "RandomUniform": {"low": 0.0, "high": 1.0},
}
"""The attributes that tell what an operator draws from, with their defaults."""
_RATIO = 0.5
"""That of a Dropout which is not told one."""


class Chance(NamedTuple):
    """What random numbers do to a pair: ``is_drawn``, whether they went into a value of it since the last paired
    values, and why it departs for that, in words; "" where both are drawn and nothing says from what else."""

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
            return Chance(True, f"random numbers that the {'first' if drawn[0] else 'second'} alone draws")
        first, second = _distribution(self._sides[0], pair.first), _distribution(self._sides[1], pair.second)
        return Chance(True, f"drawn by {second} instead of {first}" if first and second and first != second else "")


def _distribution(side: Side, name: str) -> str | None:
    """What the node of a value draws from, in words; None where it only reads draws, or is told when it runs."""
    node, constants = side.node(name), side.flow.constants
    if node is None or not may_draw(node.proto, constants):
        return None
    operator = node.proto.op_type.removesuffix("Like")
    if operator == "Dropout":
        ratio = node.operands[1]
        if ratio and ratio not in constants:
            return None
        parameters = {"ratio": numpy_helper.to_array(constants[ratio]).item() if ratio else _RATIO}
    else:
        given = {attribute.name: attribute.f for attribute in node.proto.attribute}
        parameters = {name: given.get(name, default) for name, default in _PARAMETERS.get(operator, {}).items()}
    words = ", ".join(f"{name} {value:.6g}" for name, value in parameters.items())
    return f"{operator} ({words})" if words else operator


def _drawn(side: Side, paired: Collection[str]) -> frozenset[str]:
    """The values that random numbers went into since the last paired values."""
    found = set[str]()
    for node in side.flow.nodes:
        is_fed = any(name in found and name not in paired for name in node.operands)
        if is_fed or may_draw(node.proto, side.flow.constants):
            found.update(node.results)
    return frozenset(found)
