"""What is measured between two tensors."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, replace

Number = int | float
_SIDE = re.compile(r"\b(expected|got)\b")


@dataclass(frozen=True)
class Distance:
    """How far `got` lies from `expected`.

    Numbers are in the unit of the tensors and cover the *finite pairs*, where both elements are finite. Over no finite
    pair, deviations are 0 if nothing differs and None otherwise. All are None if the shapes differ. Integers and bools
    (0 and 1) are measured exactly, everything else as in float64: two float64 too far apart for it give inf. Of float32
    and narrower tensors that lie close together, `mean_abs` is right to a millionth, `cosine` to a millionth of
    |gap|^2 / |expected|^2.

    equal      same dtype, shape and elements; NaN equals NaN, 0.0 equals -0.0
    finding    one line for what a number cannot say (dtype, shape, NaN, inf), else None; the device is never a finding.
               It calls the sides "expected" and "got" until ``between`` names them
    numbers    how many pairs are of numbers, infinities among them; 0 of NaN alone, and of what is empty
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
    numbers: int | None = None
    different: int | None = None
    max_abs: Number | None = None
    mean_abs: float | None = None
    scale: Number | None = None
    max_rel: float | None = None
    cosine: float | None = None
    worst: tuple[int, ...] | None = None

    @classmethod
    def of_equal(cls, numel: int, numbers: int | None, scale: Number) -> Distance:
        """The distance of equal tensors of so many elements, ``numbers`` of them not NaN, the largest ``scale``."""
        cosine = 1.0 if scale else None
        return cls(True, None, numel, numbers, 0, max_abs=0, mean_abs=0.0, scale=scale, max_rel=0.0, cosine=cosine)

    def between(self, expected: str, got: str) -> Distance:
        """The same with these names of the two sides in what was found."""
        if self.finding is None:
            return self
        return replace(self, finding=_SIDE.sub(lambda side: expected if side[0] == "expected" else got, self.finding))

    def told(self, one: str, other: str) -> str:
        """How far apart the largest elements lie, with these names of the two sides; ``max_abs`` has to be known."""
        return f"max |{one} - {other}| = {self.max_abs:.3g}"

    def to_json(self) -> dict[str, object]:
        """The fields as strict JSON: infinity is the string "inf", None (not measured) is null; NaN never occurs."""
        fields = {name: "inf" if value == math.inf else value for name, value in asdict(self).items()}
        return fields | {"worst": None if self.worst is None else list(self.worst)}
