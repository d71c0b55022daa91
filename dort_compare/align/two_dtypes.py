"""Numbers that tensors of two dtypes both hold."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch


def are_of_one_kind(one: int, other: int) -> bool:
    """Whether two element types of ONNX are one, both floating, or both integers.

    Signed and unsigned bytes are not: what is quantized to the ones is 128 more in the others.
    """
    kinds = ir.DataType(one), ir.DataType(other)
    if set(kinds) == {ir.DataType.INT8, ir.DataType.UINT8}:
        return False
    return one == other or all(kind.is_floating_point() for kind in kinds) or all(kind.is_integer() for kind in kinds)


def holds_all(dtype: torch.dtype, other: torch.dtype) -> bool:
    """Whether a floating dtype holds whatever another one does."""
    one, two = torch.finfo(dtype), torch.finfo(other)
    return one.eps <= two.eps and one.max >= two.max


def rounded(tensor: torch.Tensor, dtypes: Sequence[torch.dtype]) -> torch.Tensor:
    """Floats rounded to what each of the dtypes holds, in the first of them; beyond that they are infinite, as a model
    of that dtype is fed them.

    What one of them holds loses digits in another, or becomes a multiple of its smallest number, and the first still
    holds it: but for its largest number, which may be rounded up, and is infinite then.
    """
    for dtype in (*dtypes, dtypes[0]):
        tensor = tensor.to(dtype)
    return tensor


def beyond(tensor: torch.Tensor, dtype: torch.dtype) -> int | None:
    """An integer of a tensor that another integer dtype does not hold; None where it holds all."""
    limits, numbers = torch.iinfo(dtype), tensor.cpu().numpy()
    ends = [int(numbers.min()), int(numbers.max())] if numbers.size else []
    return next((end for end in ends if not limits.min <= end <= limits.max), None)
