"""What is judged element by element is right so, and what is wrong of small elements alone is found there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from of_function import Of

import dort_compare
from dort_compare.lowering import registered, registry
from dort_compare.measure.noise.exact import ELEMENTARY, right_elements

aten = torch.ops.aten
FUNCTIONS = sorted(ELEMENTARY, key=str)


def of_all_sizes(dtype: torch.dtype) -> torch.Tensor:
    """Numbers of all sizes between 2^-40 and 2^40, and of those that exponentials do not overflow at."""
    torch.manual_seed(0)
    numbers = torch.randn(2**14, dtype=torch.float64)
    wide = numbers * 2.0 ** torch.randint(-40, 40, numbers.shape)
    return torch.cat([numbers, numbers * 20, 1 + numbers * 1e-3, wide]).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_elementary_functions_are_right_element_by_element(function, dtype):
    x = of_all_sizes(dtype)
    x = x.abs() if function in (aten.sqrt.default, aten.rsqrt.default) else x
    x = x[x != 0]
    exact = function(x.double())
    found = torch.compile(function, backend="dort", options={"fallback": False})(x)
    finite = exact.to(dtype).isfinite()
    for value in (found, function(x)):
        assert right_elements(exact.to(dtype)[finite], value[finite]) is None


@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_is_wrong_of_small_results_alone_is_named(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    right = registered()[function]

    def wrong(op: Any, x: Any) -> Any:
        result = right(op, x)
        return op.Where(op.Less(op.Abs(result), 1e-7), op.Mul(result, 2), result)

    monkeypatch.setitem(registry._TABLE, function, wrong)
    x = torch.tensor([0.5, 1.0, 3.0, 40.0, 1e18, 1e-9, 2.0])
    if function is aten.exp.default:
        x = -x.clamp(max=80)
    elif function is aten.sqrt.default:
        x = x * x * 1e-10
    report = dort_compare.compare(Of(lambda x: function(x).abs() + 1), (x,))
    assert [cause.target for cause in report.causes] == [str(function)], str(report)
