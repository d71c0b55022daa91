"""Every lowering against torch's own kernel: dtype, shape and values of single calls."""

from __future__ import annotations

import pytest
import torch
from op_calls import Call, complaints
from op_rows import ROWS, Row, cases

from dort_compare import DebugBackend
from dort_compare.errors import UnsupportedGraphError
from dort_compare.lowering import registered
from dort_compare.lowering.ops import (
    checks,
    control_flow,
    grouped_matmul,
    learnable_fake_quantize_backward,
    symbolic,
    weight_int8pack,
)
from dort_compare.runtime import newest_opset
from dort_compare.runtime.opsets import OLDEST_OPSET

aten = torch.ops.aten
CASES = cases(ROWS)
OLDEST = [pytest.param(row, row.dtypes[0], id=str(row.target)) for row in ROWS]


MOST = 8
"""Calls of a row that run every day."""


def check(row: Row, dtype: torch.dtype, opset: int, share: float = 1, most: int | None = None) -> None:
    calls = row.drawn(dtype, share, most)
    assert calls, "no sample reaches the overload"
    problems = complaints(calls, opset, row.units, row.scale)
    assert not problems, f"{len(problems)} of {len(calls)} calls:\n" + "\n".join(problems)


@pytest.mark.parametrize(("row", "dtype"), CASES)
def test_values_are_torchs(row: Row, dtype: torch.dtype) -> None:
    """Of other dtypes than a row's first a third of the calls; the slow test takes all."""
    check(row, dtype, newest_opset(), 1 if dtype == row.dtypes[0] else 1 / 3, MOST)


@pytest.mark.parametrize(("row", "dtype"), OLDEST)
def test_values_are_torchs_at_the_oldest_opset(row: Row, dtype: torch.dtype) -> None:
    """A third of the calls; the slow test takes all."""
    check(row, dtype, OLDEST_OPSET, 1 / 3, MOST // 2)


@pytest.mark.slow
@pytest.mark.parametrize("opset", [newest_opset(), OLDEST_OPSET])
@pytest.mark.parametrize(("row", "dtype"), CASES)
def test_all_values_are_torchs(row: Row, dtype: torch.dtype, opset: int) -> None:
    check(row, dtype, opset)


def test_every_lowering_has_one_row() -> None:
    """Those of symbolic numbers are tested in test_symbolic_sizes, those of checks in test_data_dependent_sizes, those
    of grouped products in test_grouped_matmul, those of graphs that an operator takes in test_control_flow, gradients
    of learnt steps, which float64 has not, in test_learnable_fake_quantize, and products with a weight in bytes, of
    which there are none in float64 either, in test_weight_int8pack."""
    modules = (symbolic, checks, grouped_matmul, control_flow, learnable_fake_quantize_backward, weight_int8pack)
    elsewhere = {module.__name__ for module in modules}
    not_here = {target for target, function in registered().items() if function.__module__ in elsewhere}
    on_cuda = {target for target in registered() if is_cuda_attention(target)}
    tested = [row.target for row in ROWS]
    assert len(tested) == len(set(tested))
    assert set(tested) == set(registered()) - not_here - on_cuda


def is_cuda_attention(target: object) -> bool:
    name = str(target)
    return name.startswith("aten._scaled_dot_product") and "for_cpu" not in name


def test_what_cannot_be_right_is_refused() -> None:
    x, mask = torch.randn(3, 4), torch.tensor([True, False, True])
    query = torch.randn(1, 2, 3, 4)
    refused = {
        "a mask of no dimension as index": Call(aten.index.Tensor, (x, [mask[0]]), {}),
        "neither int32 nor int64": Call(aten.embedding_dense_backward.default, (x, mask.byte(), 3, -1, False), {}),
        "set it to 0": Call(aten._scaled_dot_product_flash_attention_for_cpu.default, (query, query, query, 0.5), {}),
    }
    for reason, call in refused.items():
        with pytest.raises(UnsupportedGraphError, match=reason):
            call.lowered(newest_opset())


def test_a_product_of_no_terms_is_zero_even_if_an_operand_is_transposed() -> None:
    """Beside values that leave the memory of the product as they were."""

    def function(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return (x @ y.mT).sin() + z.exp().cos().tan()

    compiled = torch.compile(function, backend=DebugBackend(providers=["cpu"], fallback=False))
    arguments = torch.randn(2, 3, 0), torch.randn(2, 3, 0), torch.ones(2, 3, 3)
    for _ in range(5):
        torch.testing.assert_close(compiled(*arguments), function(*arguments))
