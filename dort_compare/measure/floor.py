"""How far two right computations of one value may lie apart."""

from __future__ import annotations

import torch

_RELATIVE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4 * 2.0**-10, torch.bfloat16: 4 * 2.0**-7}
"""Of the largest element: 1e-5 for float32, four roundings (units in the last place) for the half-precision types."""

_PRECISION = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def coarsest(dtypes: list[torch.dtype]) -> torch.dtype | None:
    """The floating dtype of ``dtypes`` that rounds most; None where none is floating."""
    known = [dtype for dtype in _PRECISION if dtype in dtypes]
    return known[-1] if known else None


def noise_floor(precision: torch.dtype | None, scale: float, reference_error: float | None) -> float:
    """The largest deviation that is still noise, in the unit of the values.

    ``precision`` is the coarsest dtype that the value went through, ``scale`` its largest finite element,
    ``reference_error`` how far torch's own value lies from float64; an error twice as large as torch's is noise too.
    Integers and booleans (``precision`` None) allow nothing.
    """
    if precision is None:
        return 0.0
    return max(_RELATIVE[precision] * scale, 2 * (reference_error or 0.0))
