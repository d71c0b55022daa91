"""The form in which AOTAutograd calls a compiled graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Boxed = Callable[[list[Any]], Any]
"""Empties the list of its arguments, so that nothing outlives its last use."""


def as_boxed(call: Boxed) -> Boxed:
    """Marks ``call`` as one that takes its arguments as a list and empties it."""
    call._boxed_call = True  # type: ignore[attr-defined]
    return call
