"""Combinations of choices, of which a few run every day and all of them with the slow tests."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest

Combination = tuple[Any, ...]


def every_pair(**choices: Iterable[Any]) -> pytest.MarkDecorator:
    """Parametrizes a test by every combination; those are slow without which every two choices are seen together.

    A few combinations of many choices that have every pair find most of what depends on choices: D. R. Kuhn, D. R.
    Wallace, A. M. Gallo, "Software Fault Interactions and Implications for Software Testing", 2004.
    """
    combinations = list(itertools.product(*choices.values()))
    everyday = _chosen(combinations)
    marks = [[] if each in everyday else [pytest.mark.slow] for each in range(len(combinations))]
    values = [pytest.param(*each, marks=mark) for each, mark in zip(combinations, marks, strict=True)]
    return pytest.mark.parametrize(list(choices), values, ids=_name)


def _chosen(combinations: list[Combination]) -> set[int]:
    """The places of combinations that have every pair, each time that with the most new ones."""
    pairs = [set(itertools.combinations(enumerate(map(id, each)), 2)) for each in combinations]
    missing, chosen = set().union(*pairs), set()
    while missing:
        best = max(range(len(pairs)), key=lambda place: len(pairs[place] & missing))
        chosen.add(best)
        missing -= pairs[best]
    return chosen


def _name(value: Any) -> str:
    return str(getattr(value, "__name__", value))
