"""A rounding to float16 that ONNX Runtime drops with all its optimizers off: the op it changes is named.

In the graphs that we lower none is dropped, as we cast ourselves; the tests leave that to ONNX Runtime.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from of_function import Of
from torch import nn

import dort_compare
from dort_compare.measure import optimized as optimized_room
from dort_compare.measure.divergence import Divergence
from dort_compare.offline import check

HALF = torch.float16
TINY = 1e-15
"""Nothing in float16, so that a quotient by it is 0 / 0 in torch; in float32 it is not."""


class Share(torch.autograd.Function):
    """Passes on its argument; the gradient is divided by itself, but for what keeps it from dividing by zero."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 1.0

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad[:, :-1].sum(1, keepdim=True) / ((grad + 1) * TINY)


def quotient(z: torch.Tensor) -> torch.Tensor:
    return z[:, :-1] / ((z[:, -1:] + 1) * TINY)


def quotient_of_long_ago(z: torch.Tensor) -> torch.Tensor:
    """The divisor is made long before it is read: the exposed model computes the two apart."""
    divisor, rest = (z[:, -1:] + 1) * TINY, z[:, :-1]
    for _ in range(200):
        rest = rest.sin()
    return rest / divisor


def compared(module: nn.Module, *args: torch.Tensor, **options: Any) -> tuple[dort_compare.Report, Divergence]:
    report = dort_compare.compare(module, args, autocast=HALF, **options)
    assert report.verdict == "diverge"
    assert {row.status for row in report.rows} <= {"ok", "inherits"}
    assert report.first_divergence is not None
    return report, report.first_divergence


@pytest.mark.parametrize("optimized", [False, True])
@pytest.mark.parametrize("function", [quotient, pytest.param(quotient_of_long_ago, marks=pytest.mark.slow)])
def test_what_we_lower_is_rounded_as_in_torch(function, optimized):
    z = torch.zeros(2, 4, dtype=HALF)
    report = dort_compare.compare(Of(function), (z,), autocast=HALF, optimized=optimized)
    assert report.verdict == "agree", str(report)
    assert torch.compile(function, backend="dort")(z).isnan().all()


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("byte", [torch.uint8, torch.int8])
def test_what_becomes_bytes_is_rounded_before(half, byte):
    """204.0 in half precision is 203.95 before."""
    x = torch.rand(1000).to(half)
    compiled = torch.compile(lambda x: (x * 100.3).to(byte), backend="dort", fullgraph=True)
    assert torch.equal(compiled(x), (x * 100.3).to(byte))


@pytest.mark.usefixtures("as_onnx_runtime_casts")
@pytest.mark.parametrize("optimized", [False, True])
@pytest.mark.parametrize("function", [quotient, pytest.param(quotient_of_long_ago, marks=pytest.mark.slow)])
def test_the_op_is_named_with_what_takes_its_place(function, optimized):
    report, cause = compared(Of(function), torch.zeros(2, 4, dtype=HALF), optimized=optimized)
    assert (cause.phase, cause.fx_node, cause.target) == ("inference", "div", "aten.div.Tensor")
    assert __file__ in cause.source
    assert "div.Div" in cause.onnx_nodes
    assert cause.reason.startswith("only in what ONNX Runtime makes of the model, with all optimizers off too: ")
    assert re.search(r" in place of FX add, mul, (sin_199, )?div: 6 NaN in torch", cause.reason)
    assert [each.fx_node for each in report.causes].count("div") == 1


@pytest.mark.usefixtures("as_onnx_runtime_casts")
def test_behind_a_layer_whose_rounding_is_dropped_too():
    module = Of(lambda z, a: quotient(a(z)), a=nn.Linear(4, 4, bias=False))
    _, cause = compared(module, torch.zeros(2, 4))
    assert cause.fx_node == "div"
    assert " add, mul, div: 6 NaN in torch" in cause.reason


@pytest.mark.usefixtures("as_onnx_runtime_casts")
def test_in_the_backward_graph():
    x = torch.ones(2, 4, dtype=HALF, requires_grad=True)
    module = Of(lambda x: Share.apply(x) * torch.zeros_like(x))
    _, cause = compared(module, x, backward=True)
    assert (cause.phase, cause.fx_node) == ("backward", "div")
    assert "with all optimizers off too: " in cause.reason


@pytest.mark.usefixtures("as_onnx_runtime_casts")
def test_where_the_rounding_does_not_matter_nothing_is_looked_at_twice(monkeypatch):
    def refused(*_args: object) -> None:
        raise AssertionError("the optimized model was made")

    monkeypatch.setattr(optimized_room, "optimized_model", refused)
    report = dort_compare.compare(Of(quotient), (torch.rand(2, 4, dtype=HALF) + 1,), autocast=HALF)
    assert report.verdict == "agree", str(report)
    assert report.optimized is None


def test_noise_that_a_right_op_enlarges_is_told_as_before():
    """ONNX Runtime's Sigmoid is 0 from -18 on; what it makes of the model departs in no op of its own."""
    module, x = Of(lambda x: x.sigmoid().log()), torch.linspace(-40, 40, 33)
    report = dort_compare.compare(module, (x,), exporter="torch")
    assert [cause.fx_node for cause in report.causes] == ["log"]
    assert "it enlarges what is noise beside the largest element of these" in report.causes[0].reason
    assert report.optimized is None


@pytest.mark.usefixtures("as_onnx_runtime_casts")
def test_a_dump_alone_tells_that_the_op_is_right_by_itself(tmp_path):
    compared(Of(quotient), torch.zeros(2, 4, dtype=HALF), dump=tmp_path / "dump")
    (cause,) = check(tmp_path / "dump").causes
    assert cause.fx_node == "div"
    assert "though right where it runs alone on the same operands" in cause.reason
    assert "dort-compare bisect" in cause.reason
