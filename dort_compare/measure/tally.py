"""What the blocks of two tensors have shown so far."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import torch

from dort_compare.dtypes import dtype_name
from dort_compare.measure.blocks import Floats, Workspace, product
from dort_compare.measure.distances import Distance, Number
from dort_compare.measure.integers import LOWEST, gaps, ordered

_SMALLEST_SQUARES = 1e-280  # a sum of squares below it may have lost terms to underflow


@dataclass
class Tally:
    """Adds up blocks, in order, to a distance."""

    different: int = 0
    finite: int = 0  # finite pairs
    max_abs: Number = 0
    total: float = 0.0  # sum of |expected - got| over finite pairs
    scale: Number = 0
    rank: Number = 0  # deviation at `worst`: inf for a NaN or inf without its match
    worst: int | None = None  # flat index
    dot: float = 0.0
    squares_expected: float = 0.0
    squares_got: float = 0.0
    unmatched: Counter[str] = field(default_factory=Counter)

    def add_floats(self, start: int, expected: Floats, got: torch.Tensor, workspace: Workspace) -> bool:
        """Add flat blocks in float64 or complex128; says whether they are finite and equal."""
        self.scale = max(self.scale, expected.scale)
        gap = workspace.gap(expected.values, got).abs_()
        largest = gap.amax().item()
        if largest == 0:
            self.finite += gap.numel()
            self._add_products(expected.squares, expected.squares, expected.squares)
            return True
        if not math.isfinite(largest):
            self._add_unfinite(start, expected.values, got)
            return False
        products = (product(*pair) for pair in ((expected.values, got), (got, got)))
        self._add_products(expected.squares, *products)
        self._add_worst(largest, start, gap)
        self._add_gap(gap.numel(), largest=largest, total=gap.sum().item(), different=int(gap.sign_().sum()))
        return False

    def _add_unfinite(self, start: int, expected: torch.Tensor, got: torch.Tensor) -> None:
        """Add a block with NaN, inf, or numbers too far apart for float64."""
        self.unmatched.update(_unmatched(expected, got))
        matched = (expected == got) | (expected.isnan() & got.isnan())
        rank = (expected - got).abs().nan_to_num(nan=math.inf, posinf=math.inf).masked_fill(matched, 0)
        measured = expected.isfinite() & got.isfinite()
        expected, got = (values.masked_fill(~measured, 0) for values in (expected, got))
        gap = (expected - got).abs()
        different = int(rank.count_nonzero())
        self._add_gap(int(measured.sum()), different=different, largest=gap.max().item(), total=gap.sum().item())
        pairs = (expected, expected), (expected, got), (got, got)
        self._add_products(*(product(*pair) for pair in pairs))
        self._add_worst(rank.max().item(), start, rank)

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
        self._add_worst(largest, start, rank)

    def _add_gap(self, finite: int, *, different: int, largest: Number, total: float) -> None:
        self.finite += finite
        self.different += different
        self.max_abs = max(self.max_abs, largest)
        self.total += total

    def _add_products(self, squares_expected: float, dot: float, squares_got: float) -> None:
        self.squares_expected += squares_expected
        self.dot += dot
        self.squares_got += squares_got

    def _add_worst(self, rank: Number, start: int, ranks: torch.Tensor) -> None:
        if rank > self.rank:
            self.rank, self.worst = rank, start + int(ranks.max(0).indices)

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
