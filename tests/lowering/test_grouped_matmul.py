"""Products of matrices in groups against torch's kernel, that of transformers, and float64."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from op_calls import Call, outputs_of
from torch import Tensor

from dort_compare.runtime import newest_opset
from dort_compare.runtime.opsets import OLDEST_OPSET

aten = torch.ops.aten
TOLERANCE = {torch.float64: 1e-14, torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
ENDS = {
    "even": [8, 16, 24],
    "uneven": [3, 19, 24],
    "first and last empty": [0, 24, 24],
    "one group": [24, 24, 24],
    "some rows in none": [2, 5, 10],
    "all rows in none": [0, 0, 0],
}
opsets = pytest.mark.parametrize("opset", [OLDEST_OPSET, newest_opset()])
every_ends = pytest.mark.parametrize("ends", ENDS)


def rows_in_groups(x: Tensor, weight: Tensor, ends: list[int]) -> Tensor:
    result = x.new_zeros(x.shape[0], weight.shape[2])
    for group, (start, end) in enumerate(itertools.pairwise([0, *ends])):
        result[start:end] = x[start:end] @ weight[group]
    return result


def sums_in_groups(x: Tensor, y: Tensor, ends: list[int]) -> Tensor:
    return torch.stack([x[:, start:end] @ y[start:end] for start, end in itertools.pairwise([0, *ends])])


def new(dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))).to(dtype)


def check(target: Any, args: tuple[Any, ...], exact: list[Tensor], opset: int) -> None:
    call = Call(target, args, {})
    for actual, torchs, wide in zip(call.on_onnx_runtime(opset), outputs_of(call()), exact, strict=True):
        assert (actual.dtype, actual.shape) == (torchs.dtype, torchs.shape)
        tolerance = TOLERANCE[actual.dtype] * wide.abs().max()
        torch.testing.assert_close(actual.double(), wide, rtol=0, atol=tolerance.item())


@opsets
@every_ends
def test_what_the_ends_divide(ends: str, opset: int) -> None:
    """Rows of the first, columns of the second, or what both share; without ends the products are those of batches."""
    offsets, dtype = torch.tensor(ENDS[ends], dtype=torch.int32), torch.bfloat16
    x, columns, weight = new(dtype, 24, 8), new(dtype, 24, 16), new(dtype, 3, 8, 16)
    wide, wide_columns, wide_weight = x.double(), columns.double(), weight.double()
    target = aten._grouped_mm.default
    by_columns = rows_in_groups(wide_columns, wide_weight.mT, ENDS[ends]).T
    check(target, (x, weight, offsets), [rows_in_groups(wide, wide_weight, ENDS[ends])], opset)
    check(target, (x.T, columns, offsets), [sums_in_groups(wide.T, wide_columns, ENDS[ends])], opset)
    check(target, (weight, columns.T, offsets), [by_columns], opset)
    check(target, (weight.mT, weight), [wide_weight.mT @ wide_weight], opset)


@opsets
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@every_ends
def test_the_operators_of_transformers(ends: str, dtype: torch.dtype, opset: int) -> None:
    pytest.importorskip("transformers.integrations.moe")
    offsets = torch.tensor(ENDS[ends], dtype=torch.int64)
    x, weight, grad = new(dtype, 24, 5), new(dtype, 3, 5, 7), new(dtype, 24, 7)
    wide, wide_weight, wide_grad = x.double(), weight.double(), grad.double()
    rows = rows_in_groups(wide, wide_weight, ENDS[ends])
    grads = [
        rows_in_groups(wide_grad, wide_weight.mT, ENDS[ends]),
        sums_in_groups(wide.T, wide_grad, ENDS[ends]),
    ]
    check(torch.ops.transformers.grouped_mm_fallback.default, (x, weight, offsets), [rows], opset)
    check(torch.ops.transformers.grouped_mm_fallback_backward.default, (x, weight, offsets, grad), grads, opset)
