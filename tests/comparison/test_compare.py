"""One name for one thing, in whatever part of the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import Tensor, nn

from dort_compare import compare
from dort_compare.errors import UsageError
from dort_compare.lowering import registry
from dort_compare.offline import check


class Scaled(nn.Module):
    """Takes three tensors, two of them by name."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(4, 4)

    def forward(self, x: Tensor, more: dict[str, Tensor]) -> Tensor:
        return (self.up(x) * more["scale"]).exp() + more["bias"]


def operands() -> tuple[Tensor, dict[str, Tensor]]:
    x, scale, bias = (torch.randn(2, 4, requires_grad=True) for _ in range(3))
    return x, {"scale": scale, "bias": bias}


def test_gradients_of_arguments_have_one_name() -> None:
    report = compare(Scaled(), operands(), backward=True, autocast=torch.bfloat16, suggest_fp32=True)
    assert report.suggestion is not None
    gradients = {row.name for row in report.outputs if row.kind == "gradient"}
    judged = {error.name for error in report.suggestion.errors if error.kind == "gradient"}
    assert {"argument[0]", "argument[1]['scale']"} <= judged <= gradients


def test_a_dump_knows_the_names_of_arguments(tmp_path: Path) -> None:
    compare(Scaled(), operands(), backward=True, dump=tmp_path)
    path = tmp_path / "model_0.onnx"
    model = onnx.load(path)
    next(node for node in model.graph.node if node.op_type == "Exp").op_type = "Tanh"
    onnx.save(model, path)
    (cause,) = check(tmp_path).causes
    assert cause.reach is not None
    assert set(cause.reach.gradients) == {"up.weight", "up.bias", "argument[0]", "argument[1]['scale']"}


class Factor(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.cholesky(x @ x.mT + torch.eye(3)).exp()


class Bounded(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        torch._assert_async((x <= 9).all(), "too large")
        return x.sin()


@pytest.mark.parametrize(
    ("model", "target", "wrong"),
    [
        (Factor(), torch.ops.aten.linalg_cholesky_ex.default, lambda op, found: (found[0], op.Add(found[1], 1))),
        (Bounded(), torch.ops.aten.le.Scalar, lambda op, found: op.Not(found)),
    ],
)
def test_a_condition_that_holds_in_eager_alone_is_a_departure_and_no_error(
    model: nn.Module, target: Any, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = registry.registered()[target]
    monkeypatch.setitem(registry._TABLE, target, lambda op, *args, **given: wrong(op, right(op, *args, **given)))
    report = compare(model, (torch.rand(3, 3),))
    assert report.verdict == "diverge"
    assert [cause.target for cause in report.causes] == [str(target)]


class TwoHeads(nn.Module):
    """Of the first one, whose batch norms divide by what its weights are multiplied by, some gradients are noise."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 4)
        first = nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6()
        second = nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.BatchNorm2d(8), nn.Hardswish()
        self.image = nn.Sequential(*first, *second, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return self.image(x), torch.tanh(self.head(y))


@pytest.mark.parametrize("seed", range(3))
def test_a_cause_makes_no_departure_of_noise_that_it_does_not_reach(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tanh = registry.registered()[torch.ops.aten.tanh.default]
    monkeypatch.setitem(registry._TABLE, torch.ops.aten.tanh.default, lambda op, x: op.Mul(tanh(op, x), 1.001))
    torch.manual_seed(seed)
    report = compare(TwoHeads(), (torch.randn(4, 3, 16, 16), torch.randn(3, 4)), backward=True)
    assert [cause.target for cause in report.causes] == ["aten.tanh.default"]
    assert {row.name for row in report.outputs if not row.ok} == {"[1]", "head.weight", "head.bias"}


@torch._dynamo.disable
def overwritten(x: Tensor) -> None:
    """As scipy or C code does: torch counts no write."""
    x.detach().numpy()[...] = 3.0


class WritesItsResult(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        field = torch.zeros_like(x)
        overwritten(field)
        return x * field


class WritesWhatWasSaved(nn.Module):
    """While the gradient of the first graph is computed, what the second one has saved and read is written."""

    def forward(self, x: Tensor) -> Tensor:
        doubled = x * 2
        torch._dynamo.graph_break()
        squared = doubled.sin() * doubled.sin()
        doubled.register_hook(lambda grad: overwritten(doubled) or grad)
        return squared


@pytest.mark.parametrize("model", [WritesItsResult(), WritesWhatWasSaved()], ids=lambda model: type(model).__name__)
def test_what_is_written_without_torch_later_is_no_departure(model: nn.Module) -> None:
    x = torch.randn(2, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    report = compare(model, (x,), backward=True)
    assert report.verdict == "agree", str(report)
    assert all(seen.ok for seen in report.observed)


class Assign(torch.autograd.Function):
    """Writes into what it returns, as that of torchdiffeq does."""

    @staticmethod
    def forward(ctx: Any, scratch: Tensor, value: Tensor, index: int) -> Tensor:
        ctx.index = index
        scratch.data[index] = value
        return scratch

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        return grad, grad[ctx.index], None


class Stages(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        stages = Assign.apply(torch.zeros(2, 3), x, 0)
        torch._dynamo.graph_break()
        first = stages[:1]
        stages = Assign.apply(stages, first.sum() * x, 1)
        torch._dynamo.graph_break()
        return first.sum() + stages.sum()


class Spectrum(nn.Module):
    """Written part by part behind a break of the graph, as those of neural operators are."""

    def forward(self, x: Tensor) -> Tensor:
        parts, spectrum = torch.zeros(3, 4, dtype=torch.complex64), torch.fft.fft(x)
        torch._dynamo.graph_break()
        parts[:, 1:] = spectrum[:, 1:]
        return parts.abs()


class Counted(nn.Module):
    """Adds to a view of what a graph has made without a gradient."""

    def forward(self, x: Tensor) -> Tensor:
        counts, more = torch.arange(12.0).view(4, 3).t(), x * 2
        torch._dynamo.graph_break()
        return counts.add_(more)


@pytest.mark.parametrize("model", [Spectrum(), Counted()])
def test_what_a_graph_made_may_be_written_in_place_behind_it(model: nn.Module) -> None:
    report = compare(model, (torch.randn(3, 4, requires_grad=True),), backward=True)
    assert report.verdict == "agree", str(report)


def test_what_torch_compile_cannot_differentiate_is_refused_in_one_line() -> None:
    x = torch.ones(3, requires_grad=True)
    assert compare(Stages(), (x,), backward=True).verdict == "agree"
    with pytest.raises(UsageError, match="writes in place what a compiled graph returned a view of") as refused:
        compare(Stages(), (x,), backward=True, compile_backends=["aot_eager"])
    assert "\n" not in str(refused.value)


class Outside(nn.Module):
    @torch.compiler.disable
    def part(self, x: Tensor) -> Tensor:
        return x.softmax(-1)

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x.exp()).relu()


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sin() if x.exp().sum() > 0 else x.cos()


class Sine(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sin() * 2


class InLoop(nn.Module):
    """A break in a loop leaves no graph of the function around it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Sine(), Sine()])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            torch._dynamo.graph_break()
            x = layer(x)
        return x


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.ModuleDict({"more": Outside()})

    def forward(self, x: Tensor) -> Tensor:
        return self.inner["more"](x) + 1


def test_a_function_that_is_left_to_eager_torch_as_a_whole_is_told() -> None:
    report = compare(InLoop(), (torch.randn(3, 4),))
    (told,) = report.graph_breaks
    assert told.startswith("User-inserted graph break")
    assert "nothing is compiled of forward, at " in told
    assert f"{Path(__file__).name}:" in told


def test_a_model_of_which_nothing_is_compiled_says_why() -> None:
    class Printing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            for _ in range(2):
                if x.sum() > 0:
                    x = x.sin()
            return x

    with pytest.raises(
        UsageError, match=r"nothing to compare; A branch depends on data: nothing is compiled of forward"
    ):
        compare(Printing(), (torch.randn(3, 4),))


@pytest.mark.parametrize(
    ("model", "why"),
    [(Outside(), "`torch.compiler.disable`"), (Nested(), "`torch.compiler.disable`"), (Branching(), "depends on data")],
    ids=lambda each: type(each).__name__,
)
def test_what_breaks_the_graph_is_told_once(model: nn.Module, why: str) -> None:
    report = compare(model, (torch.randn(3, 4),))
    assert report.verdict == "agree"
    assert len(report.graph_breaks) == 1
    assert why in report.graph_breaks[0]
    assert f"{Path(__file__).name}:" in report.graph_breaks[0]
    assert report.as_json()["graph_breaks"] == list(report.graph_breaks)
    assert "graph breaks: 1; what runs between graphs is eager torch, and not compared" in str(report)


class OutsideFirst(Outside):
    def forward(self, x: Tensor) -> Tensor:
        return self.part(x).cos()


@pytest.mark.parametrize(
    "model", [OutsideFirst(), nn.Sequential(nn.Identity(), OutsideFirst())], ids=["alone", "within"]
)
def test_a_break_before_the_first_operation_is_told(model: nn.Module) -> None:
    (told,) = compare(model, (torch.randn(3, 4),)).graph_breaks
    assert "`torch.compiler.disable`" in told
    assert "before any operation of " in told


def test_a_break_in_a_loop_of_a_function_within_another_is_told_once() -> None:
    (told,) = compare(nn.Sequential(InLoop(), nn.ReLU()), (torch.randn(3, 4),)).graph_breaks
    assert "nothing is compiled of forward, at " in told


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(cls: type, ctx: Any, x: Tensor) -> Tensor:  # noqa: PLW0211
        return x * 2


class DoubledByItsClass(Doubled):
    @classmethod
    def forward(cls, ctx: Any, x: Tensor) -> Tensor:
        return super().forward(cls=cls, ctx=ctx, x=x)


class OfAFunction(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return DoubledByItsClass.apply(x)


def test_what_dynamo_fails_on_is_told_in_one_line() -> None:
    with pytest.raises(
        UsageError, match=r"^torch cannot compile the model: AsPythonConstantNotImplementedError: [^\n]*$"
    ):
        compare(OfAFunction(), (torch.ones(2),))
