"""What the blocks of two tensors have shown so far."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from dort_compare.dtypes import dtype_name
from dort_compare.measure.distance.blocks import Floats, Workspace, extent, product
from dort_compare.measure.distance.distances import Distance, Number
from dort_compare.measure.distance.integers import LOWEST, gaps, ordered

_SMALLEST_SQUARES = 1e-280  # a sum of squares below it may have lost terms to underflow
_CLOSE = 2.0**-12
"""Of the largest element, so far apart elements of close blocks are at most."""
_AT_MOST = 1 + 2.0**-23
"""Times what a gap is in float32 is the most that it may be."""
_USUAL = (2.0**-40, 2.0**40)
"""Between these float32 holds the square of a block's largest element, and of those that count beside it. Of larger
ones, such as a mask leaves, it holds the products with gaps between these: no element is more than 2^25 times as large
as its gap, unless that is 0."""


@dataclass
class Tally:
    """Adds up blocks, in order, to a distance."""

    different: int = 0
    finite: int = 0  # finite pairs
    infinite: int = 0  # pairs of numbers of which one is not finite
    max_abs: Number = 0
    total: float = 0.0  # sum of |expected - got| over finite pairs
    scale: Number = 0
    rank: Number = 0  # deviation at `worst`: inf for a NaN or inf without its match
    worst: int | None = None  # flat index
    dot: float = 0.0
    squares_expected: float = 0.0
    squares_got: float = 0.0
    unmatched: Counter[str] = field(default_factory=Counter)

    def add_floats(self, start: int, expected: Floats, got: Floats, workspace: Workspace) -> bool:
        """Add flat blocks; says whether they are finite and equal."""
        self.scale = max(self.scale, expected.scale)
        are_equal = self._add_close(start, expected, got, workspace)
        return self._add_wide(start, expected, got, workspace) if are_equal is None else are_equal

    def _add_close(self, start: int, expected: Floats, got: Floats, workspace: Workspace) -> bool | None:
        """Add blocks that lie close together, in float32, which takes half the time; None where they do not.

        A gap of numbers within a factor of two is exact (Sterbenz), any other rounds once; the largest is told in
        float64. The cosine of e and e - d is (1 - a) / sqrt(1 - 2 a + b), with a = <e, d> / <e, e> and
        b = <d, d> / <e, e>, so that it is off by no more of b than the roundings of these, which are small, of them.
        """
        one, other = expected.narrow, got.narrow
        if one is None or other is None or not expected.scale > _USUAL[0]:
            return None
        gap = workspace.gap(one, other)
        largest = extent(gap)
        if not largest <= _CLOSE * expected.scale or not largest < _USUAL[1]:
            return None
        squares = expected.narrow_squares if expected.scale < _USUAL[1] else expected.squares
        if largest == 0:
            return self._add_equal(gap.numel(), squares)
        along, across = product(one, gap), product(gap, gap)
        self._add_products(squares, squares - along, squares - 2 * along + across)
        self._add_gaps(start, gap.abs_(), largest, lambda at: (one[at].double() - other[at].double()).abs())
        return False

    def _add_wide(self, start: int, expected: Floats, got: Floats, workspace: Workspace) -> bool:
        """Add blocks in float64 or complex128."""
        one, other = expected.wide, got.wide
        gap = workspace.gap(one, other).abs_()
        largest = gap.amax().item()
        if not math.isfinite(largest):
            self._add_unfinite(start, one, other)
            return False
        if largest == 0:
            return self._add_equal(gap.numel(), expected.squares)
        self._add_products(expected.squares, product(one, other), product(other, other))
        self._add_gaps(start, gap, largest, gap.__getitem__)
        return False

    def _add_equal(self, numel: int, squares: float) -> bool:
        self.finite += numel
        self._add_products(squares, squares, squares)
        return True

    def _add_gaps(self, start: int, gap: torch.Tensor, largest: float, exactly: Callable[[Any], torch.Tensor]) -> None:
        """Add the gaps of a block, the ``largest`` of which may be rounded, as ``exactly`` tells; overwrites them."""
        if largest * _AT_MOST > self.max_abs:
            at = torch.from_numpy(np.flatnonzero(gap.cpu().numpy() == largest)).to(gap.device)
            furthest, place = exactly(at).max(0)
            self.max_abs = max(self.max_abs, furthest.item())
            self._add_worst(furthest.item(), start + int(at[place]))
        total = gap.sum().item()
        self._add_gap(gap.numel(), different=int(gap.sign_().sum()), largest=0, total=total)

    def _add_unfinite(self, start: int, expected: torch.Tensor, got: torch.Tensor) -> None:
        """Add a block with NaN, inf, or numbers too far apart for float64."""
        self.unmatched.update(_unmatched(expected, got))
        matched = (expected == got) | (expected.isnan() & got.isnan())
        rank = (expected - got).abs().nan_to_num(nan=math.inf, posinf=math.inf).masked_fill(matched, 0)
        measured = expected.isfinite() & got.isfinite()
        self.infinite += int((~(expected.isnan() | got.isnan() | measured)).sum())
        expected, got = (values.masked_fill(~measured, 0) for values in (expected, got))
        gap = (expected - got).abs()
        different = int(rank.count_nonzero())
        self._add_gap(int(measured.sum()), different=different, largest=gap.max().item(), total=gap.sum().item())
        pairs = (expected, expected), (expected, got), (got, got)
        self._add_products(*(product(*pair) for pair in pairs))
        furthest, place = rank.max(0)
        self._add_worst(furthest.item(), start + int(place))

    def add_integers(self, start: int, expected: torch.Tensor, got: torch.Tensor) -> None:
        """Add flat blocks of integers or bools. A gap is exact modulo 2^64, so read as unsigned it is exact."""
        self.scale = max(self.scale, _integer_scale(expected))
        gap = gaps(expected, got)
        rank = gap ^ LOWEST
        largest = int(rank.max()) - LOWEST
        total = gap.sum(dtype=torch.float64).item() + 2.0**64 * int((gap < 0).sum())
        self._add_gap(gap.numel(), different=int(gap.count_nonzero()), largest=largest, total=total)
        floats = expected.double(), got.double()
        pairs = (floats[0], floats[0]), floats, (floats[1], floats[1])
        self._add_products(*(product(*pair) for pair in pairs))
        self._add_worst(largest, start + int(rank.max(0).indices))

    def _add_gap(self, finite: int, *, different: int, largest: Number, total: float) -> None:
        self.finite += finite
        self.different += different
        self.max_abs = max(self.max_abs, largest)
        self.total += total

    def _add_products(self, squares_expected: float, dot: float, squares_got: float) -> None:
        self.squares_expected += squares_expected
        self.dot += dot
        self.squares_got += squares_got

    def _add_worst(self, rank: Number, place: int) -> None:
        if rank > self.rank:
            self.rank, self.worst = rank, place

    @property
    def numbers(self) -> int:
        """How many pairs are of numbers."""
        return self.finite + self.infinite

    def distance(self, expected: torch.Tensor, got: torch.Tensor) -> Distance:
        """Sum up, once every block of the pair has been added."""
        findings = [f"{count} {what}" for what, count in self.unmatched.items() if count]
        if expected.dtype != got.dtype:
            findings.insert(0, f"dtype {dtype_name(got.dtype)} instead of {dtype_name(expected.dtype)}")
        measured = self.finite > 0 or self.different == 0
        return Distance(
            equal=expected.dtype == got.dtype and self.different == 0,
            finding="; ".join(findings) or None,
            numel=expected.numel(),
            numbers=self.numbers,
            different=self.different,
            max_abs=self.max_abs if measured else None,
            mean_abs=self.total / max(self.finite, 1) if measured else None,
            scale=self.scale,
            max_rel=self._max_rel() if measured else None,
            cosine=self._cosine(),
            worst=None if self.worst is None else tuple(map(int, np.unravel_index(self.worst, expected.shape))),
        )

    def _max_rel(self) -> float:
        if self.scale == 0 or self.max_abs == math.inf:
            return 0.0 if self.max_abs == 0 else math.inf
        return self.max_abs / self.scale

    def _cosine(self) -> float | None:
        if self.different == 0:
            return 1.0 if self.scale else None
        squares = self.squares_expected, self.squares_got
        if not all(_SMALLEST_SQUARES < square < math.inf for square in squares):
            return None
        return max(-1.0, min(1.0, self.dot / math.prod(map(math.sqrt, squares))))


def _unmatched(expected: torch.Tensor, got: torch.Tensor) -> dict[str, int]:
    """Count the elements that are NaN or inf without the other side being the same."""
    expected_nan, got_nan = expected.isnan(), got.isnan()
    expected_finite, got_finite = expected.isfinite(), got.isfinite()
    expected_inf, got_inf = ~(expected_nan | expected_finite), ~(got_nan | got_finite)
    cases = {
        "NaN in got where expected has numbers": got_nan & ~expected_nan,
        "NaN in expected where got has numbers": expected_nan & ~got_nan,
        "inf in got where expected is finite": got_inf & expected_finite,
        "inf in expected where got is finite": expected_inf & got_finite,
        "inf of opposite sign": expected_inf & got_inf & (expected != got),
    }
    return {what: int(mask.sum()) for what, mask in cases.items()}


def _integer_scale(block: torch.Tensor) -> int:
    offset = -LOWEST if block.dtype == torch.uint64 else 0
    return max(abs(int(bound) + offset) for bound in ordered(block).aminmax())
