"""Decompositions of torch in the place of lowerings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dort_compare.backends import aot


@pytest.fixture
def decompose(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``decompose(op, function)``: lets AOTAutograd rewrite ``op`` into what ``function`` computes."""

    def plant(op: Any, function: Callable[..., Any]) -> None:
        table = aot.decompositions
        monkeypatch.setattr(aot, "decompositions", lambda: {**table(), op: function})

    return plant
