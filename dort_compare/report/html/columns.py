"""Rows as columns: twenty thousand rows name their keys, their modules and their ops once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_NESTED = ("inherited", "local", "statuses", "errors")
_DIGITS = 7


def columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How many rows there are, and each key's values in their order, None where a row has none.

    What ``inherited``, ``local``, ``statuses`` and ``errors`` hold stands under their name and a dot, as in
    "local.max_abs". Columns without a value are left out. A column that repeats itself is {"of": its values, "at":
    which of them each row has}. Numbers have seven digits.
    """
    found: dict[str, list[Any]] = {}
    for position, row in enumerate(rows):
        for key, value in _flat(row):
            if value is not None:
                if key not in found:
                    found[key] = [None] * len(rows)
                found[key][position] = _rounded(value)
    return {"count": len(rows), "columns": {key: _without_repeats(column) for key, column in found.items()}}


def _flat(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        if key in _NESTED and isinstance(value, dict):
            yield from ((f"{key}.{name}", each) for name, each in value.items())
        else:
            yield key, value


def _rounded(value: Any) -> Any:
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def _without_repeats(column: list[Any]) -> list[Any] | dict[str, list[Any]]:
    places: dict[Any, int] = {}
    try:
        at = [places.setdefault(_key(value), len(places)) for value in column]
    except TypeError:  # what cannot be a key is not looked for twice
        return column
    if len(places) >= len(column) / 2:
        return column
    of: list[Any] = [None] * len(places)
    for place, value in zip(at, column, strict=True):
        of[place] = value
    return {"of": of, "at": at}


def _key(value: Any) -> tuple[Any, Any]:
    """Of JSON values that are equal; 1 and true are not."""
    return type(value), tuple(value) if isinstance(value, list) else value
