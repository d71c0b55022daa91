"""What departs, or is written, outside of all modules but the model."""

from __future__ import annotations

import inspect

import pytest
import torch
from blocks_of_modules import Averaging
from torch import Tensor, nn

from dort_compare import compare


class Otherwise(nn.Module):
    """Returns something else where it is compiled, in code of its own."""

    def __init__(self, breaks: bool = False) -> None:
        super().__init__()
        self.breaks = breaks

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.tanh()
        factor = 1.01 if torch.compiler.is_compiling() else 1.0
        if self.breaks:
            torch._dynamo.graph_break()
        return x.exp(), y * factor


def test_what_departs_in_the_models_own_code_is_named_by_node_and_line() -> None:
    (cause,) = compare(Otherwise(), (torch.randn(6, 4),)).causes
    line = inspect.getsourcelines(Otherwise.forward)[1] + 1
    assert (cause.fx_node, cause.module, cause.source) == ("tanh mul", "", f"{__file__}:{line}")
    (cause,) = compare(Otherwise(breaks=True), (torch.randn(6, 4),)).causes
    assert cause.fx_node == "mul"


class Written(nn.Module):
    """Writes into a result of a graph behind it."""

    def forward(self, x: Tensor) -> Tensor:
        y, factor = x.exp(), 1.01 if torch.compiler.is_compiling() else 1.0
        return self.scaled(y, factor)

    @torch.compiler.disable
    def scaled(self, y: Tensor, factor: float) -> Tensor:
        return y.mul_(factor)


@pytest.mark.parametrize("inference", [False, True])
def test_what_is_written_behind_a_graph_is_no_departure_in_it(inference: bool) -> None:
    with torch.inference_mode(inference):
        (cause,) = compare(Written(), (torch.randn(6, 4),)).causes
    assert (cause.fx_node, cause.source) == ("", "")


@pytest.mark.parametrize("model", [nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh())])
def test_what_a_model_of_torchs_own_modules_returns_is_compared(model: nn.Module) -> None:
    """Dynamo traces the call of the model itself."""
    report = compare(model, (torch.randn(2, 4),), backward=True)
    assert {(row.kind, row.status) for row in report.modules if row.module == ""} == {
        ("output", "ok"),
        ("gradient", "ok"),
    }


def test_a_module_by_the_name_of_argument_is_a_module() -> None:
    model = nn.ModuleDict({"argument": Averaging(1.3, True)})
    model.forward = lambda x: model["argument"](x)  # type: ignore[method-assign]
    report = compare(model, (torch.randn(4, 8),), backward=False)
    assert report.causes[0].fx_node == "update argument.mean"
    assert report.causes[0].module == "argument"


class Scaled(nn.Module):
    """Multiplies at its end by a number that it holds, which torch may make symbolic."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.scale


def test_what_torch_makes_of_a_symbolic_number_belongs_to_no_module_for_sure() -> None:
    report = compare(nn.Sequential(Scaled(0.5), Scaled(0.25)), (torch.randn(3, 4),), backward=True, dynamic=True)
    assert report.verdict == "agree", str(report)
    unsure = {row.module for row in report.modules if row.status == "unaligned" and row.kind == "output"}
    assert {"0", "1"} <= unsure


@pytest.mark.parametrize("wrong", [0.0, 1e-3, 1])
def test_a_number_that_a_model_returns_is_held_against_eagers(wrong: float) -> None:
    class Scored(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, float]:
            y = x.sin()
            return y, y.sum().item() + wrong * torch.compiler.is_compiling()

    report = compare(Scored(), (torch.arange(4.0),))
    assert [row.name for row in report.outputs if not row.ok] == (["[1]"] if wrong else [])
    assert report.verdict == ("diverge" if wrong else "agree")
