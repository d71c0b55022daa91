"""NaN and infinities on one side."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from of_function import Of
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

import dort_compare
from dort_compare.lowering import registered, registry
from dort_compare.measure.distance.metrics import distance
from dort_compare.measure.noise.extremes import has_same_extremes
from dort_compare.measure.noise.local import local_error
from dort_compare.trace import Replay

aten = torch.ops.aten
FAR = torch.tensor([-1e30, -1.0, 0.0, 2.0, 89.0, 1e30])
"""exp of these is 0 or infinite, in float32, at the ends."""


def of_exp(torch_has: Tensor, onnx_has: Tensor) -> Any:
    graph = make_fx(torch.exp)(FAR).graph
    (node,) = graph.find_nodes(op="call_function", target=aten.exp.default)
    replay = Replay({node.args[0].name: FAR})
    return local_error(replay, node, torch_has, onnx_has, distance(torch_has, onnx_has))


@pytest.mark.parametrize(("place", "put"), [(2, torch.nan), (2, torch.inf), (4, 3e38), (5, 0.0), (5, -torch.inf)])
def test_float64_tells_on_which_side_what_is_not_finite_is_wrong(place, put):
    right = torch.exp(FAR)
    assert right[4:].isinf().all()
    wrong = right.clone()
    wrong[place] = put
    of_torch, of_onnx = of_exp(wrong, right), of_exp(right, wrong)
    assert (of_torch.torch_vs_float64, of_torch.onnx_vs_float64 < 1e-6) == (torch.inf, True)
    assert (of_onnx.torch_vs_float64 < 1e-6, of_onnx.onnx_vs_float64) == (True, torch.inf)
    assert (of_torch.torch_departs, of_onnx.torch_departs) == (True, False)
    assert not of_torch.is_noise
    assert not of_onnx.is_noise


def test_where_both_sides_are_wrong_neither_is_said_to_be_right():
    right = torch.exp(FAR)
    torch_has, onnx_has = right.clone(), right.clone()
    torch_has[2], onnx_has[3] = torch.nan, torch.nan
    found = of_exp(torch_has, onnx_has)
    assert (found.torch_departs, found.torch_vs_float64, found.onnx_vs_float64) == (False, torch.inf, torch.inf)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_what_rounding_takes_over_the_largest_number_may_be_finite_or_infinite(dtype):
    largest = torch.finfo(dtype).max
    exact = torch.tensor([largest, -largest], dtype=torch.float64) * (1 + torch.finfo(dtype).eps)
    for sides in ([largest, -largest], [torch.inf, -torch.inf], [torch.inf, -largest]):
        assert has_same_extremes(exact, torch.tensor(sides, dtype=dtype))
    for sides in ([largest, torch.inf], [torch.nan, -largest]):
        assert not has_same_extremes(exact, torch.tensor(sides, dtype=dtype))
    assert not has_same_extremes(exact / 2, torch.tensor([torch.inf, -largest / 2], dtype=dtype))
    assert not has_same_extremes(exact * 2, torch.tensor([largest, -torch.inf], dtype=dtype))


@pytest.mark.parametrize("factor", [1.0, 1.1])
@pytest.mark.parametrize("scale", [1e5, 1e8])
def test_what_a_rounding_takes_to_infinity_is_no_measure(monkeypatch, scale, factor):
    """Attention's gradient takes the exponential of scores less a sum of them, which was rounded to float32."""
    target = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    original = registered()[target]
    torch.manual_seed(0)
    size = torch.tensor([1.0, scale]).view(2, 1, 1, 1)
    inputs = tuple((torch.randn(2, 2, 8, 16) * size).requires_grad_() for _ in range(3))

    def wrong(op: Any, *args: Any, **kwargs: Any) -> Any:
        return tuple(op.Mul(result, factor) for result in original(op, *args, **kwargs))

    monkeypatch.setitem(registry._TABLE, target, wrong)
    report = dort_compare.compare(Of(F.scaled_dot_product_attention), inputs, backward=True)
    assert {cause.target for cause in report.causes} == ({str(target)} if factor != 1 else set()), str(report)


@pytest.mark.parametrize(
    ("function", "numbers", "onnx_has"),
    [
        (aten.sum.default, [70000, -10000], 3.0),
        (aten.sum.default, [70000, -70000], 0.0),
        (aten.sum.default, [70000, -70000], torch.inf),
        (aten.cumsum.default, [70000, -70000, 3], [100.0, 0.0, 3.0]),
    ],
)
def test_what_a_cast_of_integers_takes_to_infinity_is_no_rounding(function, numbers, onnx_has):
    """torch casts 70000 to float16, which has no such number, before it adds up."""
    x = torch.tensor(numbers)
    dim = (0,) if function is aten.cumsum.default else ()
    graph = make_fx(lambda x: function(x, *dim, dtype=torch.float16))(x).graph
    (node,) = graph.find_nodes(op="call_function", target=function)
    right, wrong = function(x, *dim, dtype=torch.float16), torch.tensor(onnx_has, dtype=torch.float16)
    assert not local_error(Replay({node.args[0].name: x}), node, right, wrong, distance(right, wrong)).is_noise


@pytest.mark.parametrize("side", [1, -1])
def test_what_a_rounding_one_way_takes_to_infinity_is_no_measure(side):
    """The sum is the largest number of float32, or its negative: up alone, or down alone, leads over it."""
    x = torch.full((1, 8), side * torch.finfo(torch.float32).max / 8)
    graph = make_fx(lambda x: x.sum(1))(x).graph
    (node,) = graph.find_nodes(op="call_function", target=aten.sum.dim_IntList)
    right, other = x.sum(1), torch.tensor([side * torch.inf])
    assert local_error(Replay({node.args[0].name: x}), node, right, other, distance(right, other)).is_noise
