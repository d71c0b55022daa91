"""Small rows, columns and elements beside huge ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from of_function import Of
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

import dort_compare
from dort_compare.lowering import registered, registry
from dort_compare.measure.distance.metrics import distance
from dort_compare.measure.noise.local import local_error
from dort_compare.trace import Replay

aten = torch.ops.aten


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "glu": lambda x: F.glu(torch.cat([x, x], 1), 1),
    "mish": F.mish,
}


BESIDE_A_LARGE_CHANNEL: dict[Any, Callable[[Tensor], Tensor]] = {
    aten.silu.default: F.silu,
    aten.gelu.default: F.gelu,
    aten.softplus.default: F.softplus,
    aten.elu.default: F.elu,
    aten.mish.default: F.mish,
    aten.sigmoid.default: lambda x: x.sigmoid() * x,
    aten.erf.default: lambda x: x.erf() * x,
}


@pytest.mark.parametrize("target", BESIDE_A_LARGE_CHANNEL)
@pytest.mark.parametrize("exporter", ["native", pytest.param("torch", marks=pytest.mark.slow)])
def test_beside_a_large_channel_each_element_is_judged_by_its_own_size(target, exporter, monkeypatch):
    """In float32; what is lost of 1 on the way is noise, as in a sigmoid of ONNX Runtime's."""
    torch.manual_seed(0)
    x = torch.randn(8, 32) * 4
    x[:, 3] = 3e3
    model = Of(BESIDE_A_LARGE_CHANNEL[target])
    clean = dort_compare.compare(model, (x.requires_grad_(),), backward=True, exporter=exporter)
    assert clean.verdict == "agree", str(clean)
    if exporter == "native":
        original = registered()[target]

        def wrong(op: Any, *args: Any) -> Any:
            y = original(op, *args)
            return op.Where(op.Less(op.Abs(y), 2.0), op.Mul(y, 1.001), y)

        monkeypatch.setitem(registry._TABLE, target, wrong)
        report = dort_compare.compare(model, (x,))
        assert [cause.target for cause in report.causes] == [str(target)], str(report)


def test_beside_a_large_channel_a_product_is_judged_by_each_column(monkeypatch):
    torch.manual_seed(0)
    layer = nn.Linear(16, 32)
    with torch.no_grad():
        layer.weight[3] *= 3e4
    x = torch.randn(24, 16)
    assert dort_compare.compare(layer, (x,), backward=True).verdict == "agree"
    original = registered()[aten.addmm.default]

    def wrong(op: Any, *args: Any, **kwargs: Any) -> Any:
        y = original(op, *args, **kwargs)
        return op.Where(op.Less(op.Abs(y), 10.0), op.Mul(y, 1.001), y)

    monkeypatch.setitem(registry._TABLE, aten.addmm.default, wrong)
    report = dort_compare.compare(layer, (x,))
    assert [cause.target for cause in report.causes] == ["aten.addmm.default"], str(report)


@pytest.mark.parametrize("bias", [-9.0, -12.0, -95.0])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_unit_that_is_dead_agrees(name, bias):
    """Its values are far smaller than those of the others."""
    torch.manual_seed(0)
    into, out = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3)
    with torch.no_grad():
        into.bias[2] = bias
    model = Of(lambda x, into, out: out(ACTIVATIONS[name](into(x))), into=into, out=out)
    report = dort_compare.compare(model, (torch.randn(2, 3, 12, 12),), backward=True)
    assert report.verdict == "agree", str(report)


OUTLIER: dict[str, Callable[[Tensor], Tensor]] = {
    "product": lambda x: x @ torch.linspace(-1, 1, 144).view(12, 12)[: x.shape[1], : x.shape[1]].cos(),
    "softplus": F.softplus,
    "square": lambda x: x**2,
    "running sum": lambda x: x.cumsum(-1),
    "sorted": lambda x: x.sort(-1).values,
    "repeated": lambda x: x.repeat(1, 2),
    "rounded": torch.round,
}


def beside_an_outlier(case: str, size: float, width: int) -> tuple[Replay, torch.fx.Node, Tensor]:
    """The last call of a function of 16 rows of which the first is huge, and what torch makes of it."""
    x = 3 * torch.randn(16, width, generator=torch.Generator().manual_seed(0))
    x[0] *= size
    graph = make_fx(OUTLIER[case])(x)
    values: dict[str, Any] = {}
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            values[node.name] = x
        elif node.op == "get_attr":
            values[node.name] = getattr(graph, node.target)
        elif node.op == "call_function":
            values[node.name] = Replay(values).value(node)
    last = graph.graph.output_node().args[0]
    return Replay(values), last, values[last.name]


@pytest.mark.parametrize("size", [1e3, 1e8])
@pytest.mark.parametrize("width", [2, 12])
@pytest.mark.parametrize("case", OUTLIER)
def test_a_huge_row_is_no_measure_for_the_others(case, width, size):
    replay, node, right = beside_an_outlier(case, size, width)
    wrong = right.clone()
    wrong[-1] *= 1.03 if case != "rounded" else 2
    found = local_error(replay, node, right, wrong, distance(right, wrong))
    assert not found.is_noise
    assert not found.torch_departs
    assert found.noise_floor < 1e-3 or size < 1e8
    assert found.distance.max_abs == (wrong[-1] - right[-1]).abs().max()
    rounded = torch.nextafter(right, torch.zeros(()))
    assert local_error(replay, node, right, rounded, distance(right, rounded)).is_noise or case in ("sorted", "rounded")


def test_a_row_that_overflows_is_no_measure_for_the_others():
    x = torch.randn(16, 12, generator=torch.Generator().manual_seed(0))
    x[0] = 3e38
    graph = make_fx(lambda x: torch.mm(x, 4 * torch.ones(12, 12)))(x)
    (node,) = graph.graph.find_nodes(op="call_function", target=aten.mm.default)
    values = {"x_1": x, node.args[1].name: 4 * torch.ones(12, 12)}
    right = torch.mm(x, 4 * torch.ones(12, 12))
    assert right[0].isinf().all()
    wrong = right.clone()
    wrong[-1] *= -1
    found = local_error(Replay(values), node, right, wrong, distance(right, wrong))
    assert not found.is_noise
    assert found.noise_floor < 1e-3
