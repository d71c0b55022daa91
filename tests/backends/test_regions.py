"""What ``torch.compiler.nested_compile_region`` marks runs in ONNX Runtime, each call as if it were not marked."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dort_compare import DebugBackend, compare
from dort_compare.lowering import registered, registry

region = torch.compiler.nested_compile_region


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.act = nn.GELU()

    @region
    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.linear(x))


class Layer(nn.Module):
    """A region with two regions in it, and results that are no tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.norm = Inner(), Inner(), nn.LayerNorm(4)

    @region
    def forward(self, x: Tensor) -> tuple[Any, ...]:
        return self.norm(self.second(self.first(x)) + x), None, 3, x.shape[-1]


class Stack(nn.Module):
    """One of its layers is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in (*self.layers, self.layers[1]):
            x, _, factor, size = layer(x)
            x = x * factor / size
        return x


class Encoded(nn.Module):
    """The calls of a region are at several depths."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Sequential(Inner(), Inner()), Inner()

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.encoder(x))


class Tied(nn.Module):
    """A weight is in three modules, and one of these in two."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = Inner(), Inner(), Inner()
        self.second.linear = self.first.linear
        self.third.linear.weight = self.first.linear.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.third(self.second(self.first(x)))


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.Softplus()

    @region
    def forward(self, x: Tensor) -> Tensor:
        return self.act(x) * 2


class WithoutParameters(nn.Module):
    """One of the modules is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Scaled(), nn.Sequential(Scaled())

    def forward(self, x: Tensor) -> Tensor:
        return self.first(self.second(self.first(x)))


class Crossed(nn.Module):
    """Twice within a region another one is called, and each time of another module."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = Inner(), Inner()

    @region
    def forward(self, x: Tensor) -> Tensor:
        return self.one(self.other(self.one(x)))


class Crossing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Crossed() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x) + layer(x.cos())
        return x


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Inner() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x


@region
def activated(layer: nn.Linear, x: Tensor) -> Tensor:
    return layer(x).relu()


class OfFunctions(nn.Module):
    """The function is called of one module more than once."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in (*self.layers, *self.layers):
            x = activated(layer, x)
        return x


class NamedOtherwise(nn.Module):
    """``self`` has another name: torch's paths begin with it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Inner() for _ in range(2))

    def forward(this, x: Tensor) -> Tensor:  # noqa: N805
        for layer in this.layers:
            x = layer(x)
        return x


MODELS: dict[str, type[nn.Module]] = {
    "modules": Stack,
    "at several depths": Encoded,
    "tied": Tied,
    "without parameters": WithoutParameters,
    "crossing": Crossing,
    "checkpointed": Checkpointed,
    "functions": OfFunctions,
}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[request.param]()


@pytest.fixture
def x() -> Tensor:
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(1))


def test_regions_run_in_onnx_runtime(model: nn.Module, x: Tensor) -> None:
    results = []
    for call in (model, torch.compile(model, backend=DebugBackend(fallback=False))):
        given = x.clone().requires_grad_()
        call(given).sin().sum().backward()
        results.append([given.grad, *(parameter.grad for parameter in model.parameters())])
        model.zero_grad()
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-6)


def test_every_call_of_a_region_is_told_by_its_own_modules(model: nn.Module, x: Tensor) -> None:
    report = compare(model, (x.requires_grad_(),), backward=True)
    assert report.verdict == "agree"
    assert not report.fallbacks
    computing = {path for path, module in model.named_modules() if not [*module.children()]}
    assert computing <= {row.module for row in report.rows}
    assert computing <= {row.module for row in report.modules}
    assert {row.status for row in report.modules} == {"ok"}


def test_modules_are_known_where_torch_has_other_paths(x: Tensor) -> None:
    report = compare(NamedOtherwise(), (x,))
    assert {(row.module, row.status) for row in report.modules} >= {("layers.1.linear", "ok"), ("layers.1.act", "ok")}
    assert {row.status for row in report.modules} == {"ok"}


def test_a_fault_in_a_region_is_told_by_the_module_of_its_call(x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second and third call are traced as one; the fault is in what only the third computes."""
    gelu = registered()[torch.ops.aten.gelu.default]

    table: dict[Any, Any] = registry._TABLE

    def wrong(op: Any, value: Any, **options: Any) -> Any:
        result = gelu(op, value, **options)
        return op.Mul(result, 1.01) if op._node.name == "gelu_2" else result

    monkeypatch.setitem(table, torch.ops.aten.gelu.default, wrong)
    torch.manual_seed(0)
    report = compare(Checkpointed(), (x,))
    assert [(cause.fx_node, cause.module) for cause in report.causes] == [("gelu_2", "layers.2.act")]
