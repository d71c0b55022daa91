"""How far two right computations of one value may lie apart."""

from __future__ import annotations

import math

import torch

from dort_compare.dtypes import HALF

_ULPS = 4
_RELATIVE = {
    torch.float64: 1e-12,
    torch.float32: 1e-5,
    torch.float16: _ULPS * 2.0**-10,
    torch.bfloat16: _ULPS * 2.0**-7,
}
"""Of the largest element, after a whole graph: 1e-5 for float32, four units in the last place for the half ones."""

_ROUNDINGS = {torch.float64: 64, torch.float32: 16, torch.float16: 4, torch.bfloat16: 4}
"""So many unit roundoffs of the largest element any op may add. Matrix products take 5 to 10 in float32, elementary
functions 1 to 3; a half-precision op rounds once, and its neighbour may lie on the other side."""

MOSTLY_NOISE = 0.1
"""A value that errs by more than this share of its largest element holds less than a digit."""
MANY = 64
"""So many elements hold the typical error for sure; of fewer, torch's may all happen to be small."""
LOOSE = 4.0
"""A floor of so many times what roundings of the result add is made by what they move."""
_IN_SEQUENCE = 25
"""Sums of no more terms stay within `_ROUNDINGS` where they are added one after another."""


def rounding(dtype: torch.dtype) -> float:
    """What the rounding of one op may add, as a share of the tensor's largest element; 0 for what is not floating."""
    return _ROUNDINGS[dtype] * torch.finfo(dtype).eps / 2 if dtype in _ROUNDINGS else 0.0


def smallest_normal(dtype: torch.dtype) -> float:
    """The smallest normal number of a floating dtype, or of float32, in which half precision is computed."""
    return min(torch.finfo(each).smallest_normal for each in (dtype, torch.float32))


def rounding_of(dtype: torch.dtype, scale: float) -> float:
    """What the rounding of one op may add to a floating result whose largest element is ``scale``, in its unit.

    Numbers below the smallest normal one lie as far apart as those just above it (Higham, Accuracy and Stability of
    Numerical Algorithms, 2.1): in float16, where gradients are often that small, 6e-8.
    """
    return rounding(dtype) * max(scale, torch.finfo(dtype).smallest_normal)


def rounding_of_sum(dtype: torch.dtype, scale: float, terms: int) -> float:
    """What adding up ``terms`` one after another may add to a floating result whose largest element is ``scale``, in
    its unit: the rounding of one op, times `growth`. What has half precision is added up in float32."""
    computed_in = torch.promote_types(dtype, torch.float32)
    return max(rounding_of(dtype, scale), growth(terms) * rounding_of(computed_in, scale))


def growth(terms: int) -> float:
    """By how much roundings grow where so many ``terms`` are added one after another, as some kernels do.

    It is the square root of their number (N. J. Higham and T. Mary, A New Approach to Probabilistic Rounding Error
    Analysis, 2019), here of each 25; 1 for up to 25 terms.
    """
    return math.sqrt(max(terms / _IN_SEQUENCE, 1.0))


def noise_floor(precision: torch.dtype | None, scale: float, reference_error: float | None, numel: int = MANY) -> float:
    """The largest deviation that is still noise after a whole graph, in the unit of the values.

    ``precision`` is the coarsest dtype that the value went through, ``scale`` its largest finite element and
    ``reference_error`` how far torch's own value lies from float64. With it, the half-precision types allow twice
    that error and one unit in the last place (four, where a tensor has few elements); float32 and float64 allow their
    share of the scale, or twice the error if that is more. A value of which torch itself holds less than a digit (what
    is left where everything cancels) allows ten times its error. What lies below the smallest normal number, of float32
    where that of ``precision`` is larger, is as coarse as just above it. Integers and booleans (``precision`` None)
    allow nothing.
    """
    if precision is None:
        return 0.0
    scale = max(scale, smallest_normal(precision))
    allowed = _RELATIVE[precision] * scale
    if reference_error is None:
        return allowed
    if reference_error > MOSTLY_NOISE * scale:
        return max(allowed, 10 * reference_error)
    if precision in HALF:
        return 2 * reference_error + (allowed / _ULPS if numel >= MANY else allowed)
    return max(allowed, 2 * reference_error)
