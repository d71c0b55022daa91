"""Two values of two models that are held to be the same, and what speaks for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

How = Literal["input", "constant", "dataflow", "content", "place", "output", "guess", "copy", "returned"]


@dataclass(frozen=True)
class Pair:
    """Two values held to be the same.

    how: what speaks for it. input: given by the caller or the order of inputs. constant: equal constants. dataflow:
    the same expression of paired operands. content: equal elements that chance does not make. place: what stands
    between paired values. output: outputs in order. guess: equal elements that prove little, such as zeros. copy: one
    of the two is paired with another value, of which this one is a copy. returned: an output and the one that it stands
    for, where it is paired with another value.
    """

    first: str
    second: str
    how: How

    @property
    def is_main(self) -> bool:
        """Whether it is the one pair of the second value: what reads that is fed the first."""
        return self.how not in ("copy", "returned")
