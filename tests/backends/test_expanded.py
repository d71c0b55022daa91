"""Flex attention and loops run in ONNX Runtime operator by operator, long loops as ONNX's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.attention.flex_attention as flex
from torch import Tensor, nn
from torch._higher_order_ops import map as map_rows
from torch._higher_order_ops import scan

from dort_compare import Report, compare
from dort_compare.backends import expanded
from dort_compare.lowering import registered, registry
from dort_compare.offline import check

THIS = Path(__file__).name
PRODUCT = "aten.addmm.default"


class Recurrent(nn.Module):
    """The parameters are captured, the sequence is read from its end."""

    def __init__(self) -> None:
        super().__init__()
        self.given, self.hidden = nn.Linear(3, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        def step(hidden: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
            hidden = torch.tanh(self.given(row) + self.hidden(hidden)).to(hidden.dtype)
            return hidden, hidden * 2

        return scan(step, torch.zeros(x.shape[1], 4), x, dim=0, reverse=True)


class OfRows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        return map_rows(lambda row, factor: (row * factor).sin(), x, self.factor)  # type: ignore[arg-type]


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor) -> Any:
        def step(sum_before: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            found: Tensor = map_rows(lambda row, factor: (row * factor).sin(), rows, self.factor)  # type: ignore[arg-type]
            return sum_before + found.sum(0), found.exp()

        return scan(step, torch.zeros(3), x, dim=0)


class Called(nn.Module):
    """The module in the loop is called once beside it, too: that is the only call of it that eager makes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        def each(row: Tensor) -> Tensor:
            row = self.layer(row)
            return row.sin()

        rows = map_rows(each, x)  # type: ignore[arg-type]
        return self.layer(rows)


class CalledInRegion(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    @torch.compiler.nested_compile_region
    def forward(self, x: Tensor) -> Tensor:
        return map_rows(lambda row: self.layer(row).sin(), x)  # type: ignore[arg-type, misc]


LOOPS: dict[str, type[nn.Module]] = {"scan": Recurrent, "map": OfRows, "map in scan": Nested}
ROUNDS = {Recurrent: 5, OfRows: 5, Nested: 10}
"""For an input of 5 x 2 x 3."""


def causal(batch: Tensor, head: Tensor, row: Tensor, column: Tensor) -> Tensor:
    return row >= column


class Attention(nn.Module):
    """Grouped heads, capped scores with a bias that is learned and one that is not, and a causal mask."""

    slope: Tensor

    def __init__(self, with_mask: bool = True) -> None:
        super().__init__()
        self.projection = nn.Linear(8, 32)
        self.bias = nn.Parameter(torch.randn(4, 16))
        self.register_buffer("slope", torch.randn(4))
        self.with_mask = with_mask

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        length = x.shape[1]
        query, key, value = self.projection(x).view(2, length, 8, 4).transpose(1, 2).split([4, 2, 2], 1)
        mask = flex.create_block_mask(causal, None, None, length, length, device="cpu") if self.with_mask else None

        def capped(score: Tensor, _: Tensor, head: Tensor, row: Tensor, column: Tensor) -> Tensor:
            return torch.tanh(score / 5) * 5 + self.bias[head, (row - column).abs()] + self.slope[head]

        return flex.flex_attention(query, key, value, capped, mask, enable_gqa=True, return_lse=True)


class AttentionAlone(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        heads = x[:, None]
        return flex.flex_attention(heads, heads.cos(), heads.sin())


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(0)
    return LOOPS[request.param]()


@pytest.fixture
def x() -> Tensor:
    return torch.randn(5, 2, 3, generator=torch.Generator().manual_seed(1))


def agrees(model: nn.Module, x: Tensor, **options: Any) -> Report:
    """Every value of a model without anything in eager torch."""
    report = compare(model, (x,), backward=True, **options)
    assert report.verdict == "agree", report
    assert not report.fallbacks
    assert {row.status for row in report.rows} == {"ok"}
    return report


def test_every_round_of_a_loop_is_compared(loop: nn.Module, x: Tensor) -> None:
    report = agrees(loop, x.requires_grad_())
    assert {row.phase for row in report.rows} == {"forward", "backward"}
    of_rounds = [row for row in report.rows if row.target in ("aten.tanh.default", "aten.sin.default")]
    assert len([row for row in of_rounds if row.phase == "forward"]) == ROUNDS[type(loop)]
    assert all(THIS in row.source for row in report.rows)


def test_loops_in_half_precision(loop: nn.Module, x: Tensor) -> None:
    agrees(loop, x, autocast=torch.bfloat16)


def test_what_is_in_a_loop_is_told_by_its_own_line_and_module(x: Tensor) -> None:
    torch.manual_seed(0)
    report = agrees(Called(), x)
    forward = [row for row in report.rows if row.phase == "forward"]
    assert {(row.module, row.code) for row in forward if row.target == "aten.sin.default"} == {("", "return row.sin()")}
    assert {row.code for row in forward if row.target == PRODUCT} == {
        "row = self.layer(row)",
        "return self.layer(rows)",
    }
    assert {row.module for row in forward if row.target == PRODUCT} == {"layer"}
    assert {row.status for row in report.modules} == {"ok"}


def test_what_is_in_a_loop_in_a_region_is_told_by_its_own_module(x: Tensor) -> None:
    torch.manual_seed(0)
    report = agrees(nn.Sequential(*(CalledInRegion() for _ in range(3))), x)
    found = [row.module for row in report.rows if (row.phase, row.target) == ("forward", PRODUCT)]
    assert found == ["0.layer"] * 5 + ["1.layer"] * 5 + ["2.layer"] * 5


def test_the_fast_backend_runs_loops(loop: nn.Module, x: Tensor) -> None:
    expected, got = (call(x) for call in (loop, torch.compile(loop, backend="dort", options={"fallback": False})))
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-6)


def test_a_fault_is_told_in_its_round(x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    tanh = registered()[torch.ops.aten.tanh.default]
    table: dict[Any, Any] = registry._TABLE

    def wrong(op: Any, value: Any) -> Any:
        result = tanh(op, value)
        return op.Mul(result, 1.01) if op._node.name == "tanh_2" else result

    monkeypatch.setitem(table, torch.ops.aten.tanh.default, wrong)
    torch.manual_seed(0)
    report = compare(Recurrent(), (x,))
    assert [cause.fx_node for cause in report.causes] == ["tanh_2"]


@pytest.mark.parametrize("with_mask", [True, False])
def test_flex_attention_runs_by_its_definition(with_mask: bool) -> None:
    torch.manual_seed(0)
    report = compare(Attention(with_mask), (torch.randn(2, 16, 8),))
    assert report.verdict == "agree", report
    assert not report.fallbacks
    assert "aten._softmax.default" in {row.target for row in report.rows}


@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_the_gradient_of_flex_attention(autocast: torch.dtype | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch (2.13) refuses it on the CPU, where its definition works all the same."""
    monkeypatch.setattr(flex, "_validate_device", lambda *_: None)
    torch.manual_seed(0)
    report = agrees(Attention(), torch.randn(2, 16, 8), autocast=autocast)
    assert "bias" in {row.name for row in report.outputs if row.kind == "gradient"}


def test_flex_attention_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's graphs say that the logarithms of the sums are float32, its definition says float64."""
    monkeypatch.setattr(flex, "_validate_device", lambda *_: None)
    torch.manual_seed(0)
    agrees(AttentionAlone(), torch.randn(2, 16, 4, dtype=torch.float64).requires_grad_())


@pytest.mark.parametrize("options", [{}, {"dynamic": True}], ids=["long", "of unknown length"])
def test_a_long_loop_is_one_value(
    options: dict[str, Any], loop: nn.Module, x: Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expanded, "MOST_NODES", 10)
    report = agrees(loop, x.requires_grad_(), dump=tmp_path, **options)
    forward = {row.target for row in report.rows if row.phase == "forward"}
    assert any(target.startswith("torch.ops.higher_order.") for target in forward)
    assert forward.isdisjoint({"aten.tanh.default", "aten.sin.default"})
    assert check(tmp_path).verdict == "agree"


def test_a_loop_of_loops_counts_by_all_its_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    class OfElements(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return map_rows(lambda row: map_rows(lambda each: each.sin() * 2, row), x)  # type: ignore[arg-type]

    monkeypatch.setattr(expanded, "MOST_NODES", 500)
    report = compare(OfElements(), (torch.randn(20, 20),))
    assert report.verdict == "agree", report
    assert {row.target for row in report.rows} == {"torch.ops.higher_order.map_impl"}


def test_a_fault_in_a_long_loop_departs_where_its_results_are_taken(x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expanded, "MOST_NODES", 10)
    tanh = registered()[torch.ops.aten.tanh.default]
    table: dict[Any, Any] = registry._TABLE
    monkeypatch.setitem(table, torch.ops.aten.tanh.default, lambda op, value: op.Mul(tanh(op, value), 1.01))
    torch.manual_seed(0)
    report = compare(Recurrent(), (x,))
    assert {cause.target for cause in report.causes} == {"torch.ops.higher_order.scan"}


def test_a_long_loop_in_half_precision_runs_in_eager_torch(x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expanded, "MOST_NODES", 10)
    report = compare(OfRows(), (x.bfloat16(),))
    assert [fallback.reason for fallback in report.fallbacks] == ["half precision in a graph that it takes"]


def test_the_fast_backend_runs_a_loop_of_many_rounds() -> None:
    torch.manual_seed(0)
    model, x = Recurrent(), torch.randn(3000, 2, 3)
    gradients = []
    for call in (model, torch.compile(model, backend="dort", options={"fallback": False})):
        last, every = call(x)
        gradients.append(torch.autograd.grad(last.sum() + every.square().mean(), [*model.parameters()]))
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


def test_a_loop_that_cannot_be_traced_is_one_value(x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: Any) -> Any:
        raise RuntimeError("not today")

    monkeypatch.setitem(expanded._LOOPS, torch.ops.higher_order.map_impl, refuses)
    report = agrees(OfRows(), x)
    assert "torch.ops.higher_order.map_impl" in {row.target for row in report.rows}
