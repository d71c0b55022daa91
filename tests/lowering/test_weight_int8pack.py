"""Products with a weight in bytes, against torch's kernel and float64, which that kernel lacks."""

from __future__ import annotations

import pytest
import torch
from op_calls import Call, outputs_of

from dort_compare import compare
from dort_compare.runtime import newest_opset
from dort_compare.runtime.opsets import OLDEST_OPSET

aten = torch.ops.aten
TOLERANCE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
dtypes = pytest.mark.parametrize("dtype", TOLERANCE)


def arguments(dtype: torch.dtype, rows: int, terms: int, columns: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(terms)
    weight = torch.randint(-128, 128, (columns, terms), dtype=torch.int8, generator=generator)
    x, scales = (torch.randn(size, generator=generator).to(dtype) for size in ((rows, terms), (columns,)))
    return x, weight, scales


@pytest.mark.parametrize("opset", [OLDEST_OPSET, newest_opset()])
@pytest.mark.parametrize("sizes", [(2, 32, 16), (1, 64, 4), (17, 1504, 8)])
@dtypes
def test_rows_of_the_weight_are_scaled(dtype: torch.dtype, sizes: tuple[int, int, int], opset: int) -> None:
    """Of 16 terms or a multiple: torch's kernel for half precision reads beyond the end of others."""
    x, weight, scales = arguments(dtype, *sizes)
    call = Call(aten._weight_int8pack_mm.default, (x, weight, scales), {})
    (actual,), (torchs,) = call.on_onnx_runtime(opset), outputs_of(call())
    exact = x.double() @ weight.double().T * scales.double()
    assert (actual.dtype, actual.shape) == (torchs.dtype, torchs.shape)
    for value in (actual, torchs):
        torch.testing.assert_close(value.double(), exact, rtol=0, atol=TOLERANCE[dtype] * exact.abs().max().item())


class Quantized(torch.nn.Module):
    def __init__(self, weight: torch.Tensor, scales: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("scales", scales)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(aten._weight_int8pack_mm.default(x, self.weight, self.scales))


@dtypes
def test_it_is_compared_with_float64(dtype: torch.dtype) -> None:
    x, *quantized = arguments(dtype, 3, 64, 8)
    report = compare(Quantized(*quantized), (x,))
    assert report.verdict == "agree", str(report)
    assert not report.fallbacks
    (row,) = (row for row in report.rows if row.fx_node.startswith("_weight_int8pack_mm"))
    exact = x.double() @ quantized[0].double().T * quantized[1].double()
    torchs = aten._weight_int8pack_mm.default(x, *quantized).double()
    assert row.torch_vs_float64 == pytest.approx((torchs - exact).abs().max().item())
