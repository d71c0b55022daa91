"""frexp on processors whose logarithms and powers are rounded otherwise than the CPU's."""

from __future__ import annotations

import onnx_ir as ir
import pytest
import torch
from op_calls import Call, complaints

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops import power
from dort_compare.runtime import newest_opset

aten = torch.ops.aten
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def powers_of_two(dtype: torch.dtype) -> torch.Tensor:
    """All of them, and what is next to each."""
    exact = torch.exp2(torch.arange(-149, 128, dtype=torch.float64)).to(dtype)
    exact = exact[(exact > 0) & exact.isfinite()]
    ends = torch.tensor([-torch.inf, torch.inf, torch.nan, 0.0, torch.finfo(dtype).max], dtype=dtype)
    return torch.cat([exact, exact.nextafter(ends[0]), -exact.nextafter(ends[1]), ends])


@pytest.mark.parametrize("missed", [-1, 0, 1])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_first_guess_may_be_one_off(dtype: torch.dtype, missed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The right exponent is that of the first power of two that exceeds the number."""

    def missing(op: Builder, size: ir.Value) -> ir.Value:
        powers = op.const([2.0**e for e in range(-149, 128)], torch.float64)
        reached = op.cast(op.GreaterOrEqual(op.Unsqueeze(size, [-1]), powers), torch.int32)
        return op.Add(op.cast(op.ReduceSum(reached, [-1], keepdims=0), torch.int64), missed - 149)

    monkeypatch.setattr(power, "_guessed_exponent", missing)
    assert not complaints([Call(aten.frexp.Tensor, (powers_of_two(dtype),), {})], newest_opset(), units=0)


def test_no_power_of_two_is_computed() -> None:
    """A hair below a power of two, the mantissa of one became 1 where it was rounded to float32."""
    call = Call(aten.frexp.Tensor, (torch.ones(3),), {})
    assert "Pow" not in [node.op_type for node in call.lowered(newest_opset()).model.graph]
