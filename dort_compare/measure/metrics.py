"""How far one tensor lies from another: exact for integers, in float64 for floats, never broadcast, block by block."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

import numpy as np
import torch

Number = int | float

BLOCK = 2**20  # elements measured together: 8 MiB for each float64 copy of a block
_LOWEST = -(2**63)  # of int64; XOR with it maps the order of uint64 onto that of int64
_SMALLEST_SQUARES = 1e-280  # a sum of squares below it may have lost terms to underflow


@dataclass(frozen=True)
class Distance:
    """How far `got` lies from `expected`.

    Numbers are in the unit of the tensors and cover the *finite pairs*, where both elements are finite. Over no finite
    pair, deviations are 0 if nothing differs and None otherwise. All are None if the shapes differ. Integers and bools
    (0 and 1) are measured exactly, everything else in float64: two float64 too far apart for it give inf.

    equal      same dtype, shape and elements; NaN equals NaN, 0.0 equals -0.0
    finding    one line for what a number cannot say (dtype, shape, NaN, inf), else None; the device is never a finding
    different  how many elements are unequal, those that are not finite included
    max_abs    max |expected - got|; an int if both tensors hold integers or bools
    mean_abs   mean |expected - got|
    scale      max |expected| over its finite elements; 0 if there are none
    max_rel    max_abs / scale; for scale 0: 0 if max_abs is 0, else inf
    cosine     <expected, got> / (|expected| |got|), its real part if complex; None if a norm is 0 or its square
               leaves the range of float64
    worst      index of the first largest deviation, where NaN or inf on one side only outranks every number;
               None if nothing differs
    """

    equal: bool
    finding: str | None
    numel: int
    different: int | None = None
    max_abs: Number | None = None
    mean_abs: float | None = None
    scale: Number | None = None
    max_rel: float | None = None
    cosine: float | None = None
    worst: tuple[int, ...] | None = None

    def to_json(self) -> dict[str, object]:
        """The fields as strict JSON: infinity is the string "inf", None (not measured) is null; NaN never occurs."""
        fields = {name: "inf" if value == math.inf else value for name, value in asdict(self).items()}
        return fields | {"worst": None if self.worst is None else list(self.worst)}


def distance(expected: torch.Tensor, got: torch.Tensor) -> Distance:
    """Measure how far `got` lies from `expected`; see `Distance`.

    Tensors on two devices are compared on the CPU. Two dtypes are a finding, and are measured in int64 if both are
    integers, else in float64 or complex128.
    """
    if expected.shape != got.shape:
        finding = f"shape {tuple(got.shape)} instead of {tuple(expected.shape)}"
        return Distance(equal=False, finding=finding, numel=expected.numel())
    expected, got = _on_one_device(expected.detach(), got.detach())
    return _tally(expected, got).distance(expected, got)


def deviation(exact: torch.Tensor, value: torch.Tensor) -> float | None:
    """max |exact - value| over the finite pairs of two floating tensors, in the dtype of `exact`, and nothing besides.

    One pass where `distance` makes a dozen. None if the shapes differ.
    """
    if exact.shape != value.shape:
        return None
    largest = 0.0
    for _, exact_block, block in _blocks(*_on_one_device(exact.detach(), value.detach()), BLOCK):
        gap = exact_block - block.to(exact.dtype)
        found = torch.linalg.vector_norm(gap, math.inf).item()
        if not math.isfinite(found):
            found = torch.linalg.vector_norm(gap.masked_fill(~gap.isfinite(), 0), math.inf).item()
        largest = max(largest, found)
    return largest


def _on_one_device(expected: torch.Tensor, got: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return (expected, got) if expected.device == got.device else (expected.cpu(), got.cpu())


def _tally(expected: torch.Tensor, got: torch.Tensor) -> _Tally:
    tally = _Tally()
    if expected.dtype == got.dtype and torch.equal(expected, got):
        tally.scale = max((_scale(block) for _, block, _ in _blocks(expected, got, BLOCK)), default=0)
        return tally
    add = tally.add_integers if _share_an_integer_type(expected.dtype, got.dtype) else tally.add_floats
    for start, expected_block, got_block in _blocks(expected, got, BLOCK):
        add(start, expected_block, got_block)
    return tally


def _blocks(
    expected: torch.Tensor, got: torch.Tensor, size: int, start: int = 0
) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """Cut two tensors of one shape into flat blocks of at most `size` elements, each with its first flat index.

    The cut runs along the leading dimensions, so that a strided or expanded tensor is copied a block at a time.
    """
    if expected.numel() <= size:
        if expected.numel():
            yield start, expected.reshape(-1), got.reshape(-1)
        return
    row = expected.numel() // len(expected)
    rows = max(1, size // row)
    for i in range(0, len(expected), rows):
        part = i if row > size else slice(i, i + rows)
        yield from _blocks(expected[part], got[part], size, start + i * row)


@dataclass
class _Tally:
    """What the blocks of a pair have shown so far."""

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

    def add_floats(self, start: int, expected: torch.Tensor, got: torch.Tensor) -> None:
        """Add a block of which one side at least is floating or complex."""
        expected, got = _as_floats(expected, got)
        self.scale = max(self.scale, _scale(expected))
        gap = rank = (expected - got).abs()
        finite = gap.numel()
        if not math.isfinite(gap.max().item()):
            self.unmatched.update(_unmatched(expected, got))
            matched = (expected == got) | (expected.isnan() & got.isnan())
            rank = gap.nan_to_num(nan=math.inf, posinf=math.inf).masked_fill(matched, 0)
            measured = expected.isfinite() & got.isfinite()
            finite = int(measured.sum())
            expected, got, gap = (values.masked_fill(~measured, 0) for values in (expected, got, gap))
        self._add_gap(finite, different=int(rank.count_nonzero()), largest=gap.max().item(), total=gap.sum().item())
        self._add_products(expected, got)
        self._add_worst(rank.max().item(), start, rank)

    def add_integers(self, start: int, expected: torch.Tensor, got: torch.Tensor) -> None:
        """Add a block of integers or bools. A gap is exact modulo 2^64, so read as unsigned it is exact."""
        self.scale = max(self.scale, _scale(expected))
        ordered = _ordered(expected), _ordered(got)
        gap = torch.maximum(*ordered) - torch.minimum(*ordered)
        rank = gap ^ _LOWEST
        largest = int(rank.max()) - _LOWEST
        total = gap.sum(dtype=torch.float64).item() + 2.0**64 * int((gap < 0).sum())
        self._add_gap(gap.numel(), different=int(gap.count_nonzero()), largest=largest, total=total)
        self._add_products(expected.double(), got.double())
        self._add_worst(largest, start, rank)

    def _add_gap(self, finite: int, *, different: int, largest: Number, total: float) -> None:
        self.finite += finite
        self.different += different
        self.max_abs = max(self.max_abs, largest)
        self.total += total

    def _add_products(self, expected: torch.Tensor, got: torch.Tensor) -> None:
        self.dot += _product(expected, got)
        self.squares_expected += _product(expected, expected)
        self.squares_got += _product(got, got)

    def _add_worst(self, rank: Number, start: int, ranks: torch.Tensor) -> None:
        if rank > self.rank:
            self.rank, self.worst = rank, start + int(ranks.argmax())

    def distance(self, expected: torch.Tensor, got: torch.Tensor) -> Distance:
        """Sum up, once every block of the pair has been added."""
        findings = [f"{count} {what}" for what, count in self.unmatched.items() if count]
        if expected.dtype != got.dtype:
            findings.insert(0, f"dtype {_name(got.dtype)} instead of {_name(expected.dtype)}")
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


def _product(one: torch.Tensor, other: torch.Tensor) -> float:
    """The real part of <one, other>; not torch.vdot, whose threads wait on each other for milliseconds a block."""
    real: float = (one.conj() * other).real.sum().item()
    return real


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


def _scale(block: torch.Tensor) -> Number:
    """The largest finite |element| of a block that is not empty."""
    if _is_integer(block.dtype):
        offset = -_LOWEST if block.dtype == torch.uint64 else 0
        return max(abs(int(bound) + offset) for bound in _ordered(block).aminmax())
    values, _ = _as_floats(block, block)
    largest: float = torch.linalg.vector_norm(values, math.inf).item()
    if not math.isfinite(largest):
        largest = torch.linalg.vector_norm(values.masked_fill(~values.isfinite(), 0), math.inf).item()
    return largest


def _as_floats(expected: torch.Tensor, got: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    dtype = torch.complex128 if expected.is_complex() or got.is_complex() else torch.float64
    return expected.to(dtype), got.to(dtype)


def _ordered(block: torch.Tensor) -> torch.Tensor:
    """Integers as int64 with the same order and the same differences (uint64: less 2^63)."""
    return block.view(torch.int64) ^ _LOWEST if block.dtype == torch.uint64 else block.to(torch.int64)


def _share_an_integer_type(expected: torch.dtype, got: torch.dtype) -> bool:
    if expected == got:
        return _is_integer(expected)
    return all(_is_integer(dtype) and dtype != torch.uint64 for dtype in (expected, got))


def _is_integer(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
