"""How long the stages of a compilation take."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stages:
    """A clock: what runs within ``stages("lower")`` counts as that stage.

    ``seconds`` holds the time that each stage took, all its turns together, in the order in which they began.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self.seconds.setdefault(name, 0.0)
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - begun
