"""A graph that runs more than once is compared in each of its runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dort_compare import compare
from dort_compare.api import MAX_RUNS
from dort_compare.errors import ExecutionError
from dort_compare.lowering import registry
from dort_compare.measure.before_onnx.tracing import Tracing
from dort_compare.measure.rows import Row
from dort_compare.offline import check
from dort_compare.report import Report

aten = torch.ops.aten
ROUNDS = 4


class Doubled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.scale).tanh() + 2 * x


class Repeated(nn.Module):
    """One graph runs in every round: the loop itself is not compiled, for what it calls is broken."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = Doubled()

    def forward(self, x: Tensor, rounds: int = ROUNDS) -> Tensor:
        for _ in range(rounds):
            x = self.cell(x)
            torch._dynamo.graph_break()
        return x


def small() -> Tensor:
    """Grows with every round: 0.1, some 0.3, some 0.9, some 2.5."""
    return torch.full((2, 3), 0.1)


def wrong_beyond(limit: float, right: Callable[..., Any], position: int = 0) -> Callable[..., Any]:
    """A lowering that is a hundredth off where the operand in that position exceeds ``limit``."""

    def lowering(op: Any, *args: Any) -> Any:
        found = right(op, *args)
        return op.Where(op.Greater(args[position], limit), op.Mul(found, 1.01), found)

    return lowering


def plant(monkeypatch: pytest.MonkeyPatch, target: Any, limit: float, position: int = 0) -> None:
    monkeypatch.setitem(registry._TABLE, target, wrong_beyond(limit, registry.registered()[target], position))


def departing(report: Report) -> list[Row]:
    return [row for row in report.rows if row.status == "diverges"]


def test_right_runs_agree_and_are_counted() -> None:
    report = compare(Repeated(), (small(),), backward=True)
    assert report.verdict == "agree", str(report)
    assert {row.run for row in report.rows} == {1}
    assert sorted(graph.ran for graph in report.graphs) == [1, 1, ROUNDS - 1, ROUNDS - 1]  # of gradients from round 2
    assert all(graph.compared == graph.ran for graph in report.graphs)
    assert "max_runs" not in report.text()


@pytest.mark.parametrize(("limit", "run"), [(0.0, 1), (0.2, 2), (0.5, 3), (1.5, 4)])
def test_a_fault_is_named_in_the_first_run_that_shows_it(
    limit: float, run: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, aten.tanh.default, limit)
    report = compare(Repeated(), (small().requires_grad_(),), backward=True)
    assert {row.target for row in departing(report)} == {"aten.tanh.default"}
    first = report.first_divergence
    assert first is not None
    assert (first.target, first.run) == ("aten.tanh.default", run)
    assert first.reason.startswith(f"in run {run} of its graph: ") == (run > 1)
    assert report.as_json()["first_divergence"]["run"] == run


class Layers(nn.Module):
    """Layers that are alike, and so have one graph."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Doubled() for _ in range(ROUNDS))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = apply(layer, x)
            torch._dynamo.graph_break()
        return x


def apply(layer: nn.Module, x: Tensor) -> Any:
    return layer(x)


def test_what_a_later_run_reaches_has_the_names_of_that_run_and_is_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, aten.tanh.default, 0.5)
    (cause,) = compare(Layers(), (small().requires_grad_(),), backward=True).causes
    assert cause.reach is not None
    assert (cause.run, cause.reach.beyond) == (3, True)
    assert [name for name in cause.reach.gradients if "layers" in name] == ["layers.2.scale"]
    assert "argument[0]" not in cause.reach.gradients


def test_what_a_run_of_a_backward_graph_reaches_has_no_name_of_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._TABLE, aten.tanh_backward.default, lambda op, grad, y: op.Neg(grad))
    (cause,) = compare(Layers(), (small().requires_grad_(),), backward=True).causes
    assert cause.reach is not None
    assert (cause.phase, cause.run) == ("backward", 1)
    assert [name for name in cause.reach.gradients if "layers" in name] == [f"layers.{ROUNDS - 1}.scale"]


def test_a_fault_in_a_later_run_of_a_backward_graph_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradients run from the last round, with the largest saved result, to the first."""
    right = registry.registered()[aten.tanh_backward.default]
    monkeypatch.setitem(
        registry._TABLE,
        aten.tanh_backward.default,
        lambda op, grad, y: op.Where(op.Less(y, 0.2), op.Neg(right(op, grad, y)), right(op, grad, y)),
    )
    report = compare(Repeated(), (small().requires_grad_(),), backward=True)
    (cause,) = report.causes
    assert (cause.phase, cause.target, cause.run) == ("backward", "aten.tanh_backward.default", ROUNDS)


@pytest.mark.parametrize("backward", [False, True])
def test_a_value_reaches_what_other_runs_compute(backward: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, aten.tanh.default, 0.2)
    (cause,) = compare(Repeated(), (small(),), backward=backward).causes
    assert cause.reach is not None
    assert cause.reach.beyond
    assert cause.reach.gradients == (("cell.scale",) if backward else ())


class Blocks(nn.Module):
    """Of each of several modules one graph runs: torch traces their code once."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(Doubled()) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
            torch._dynamo.graph_break()
        return x


@pytest.mark.parametrize(("limit", "path"), [(0.0, "blocks.0.0"), (0.2, "blocks.1.0"), (0.5, "blocks.2.0")])
def test_the_module_is_the_one_that_ran(limit: float, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, aten.tanh.default, limit)
    report = compare(Blocks(), (small().requires_grad_(),), backward=True)
    first = report.first_divergence
    assert first is not None
    assert (first.target, first.module) == ("aten.tanh.default", path)
    assert {row.module for row in report.rows if row.graph == first.graph} == {path}


def test_modules_of_backward_graphs_and_of_half_precision_are_the_ones_that_ran() -> None:
    """The gradient of the last block is the first that is computed."""
    report = compare(Blocks().half(), (small().half().requires_grad_(),), backward=True)
    modules = {row.phase: row.module for row in report.rows if row.run == 1}
    assert modules == {"forward": "blocks.0.0", "backward": "blocks.2.0"}
    assert report.precision.closest is not None
    assert report.precision.closest.module in modules.values()


@pytest.mark.parametrize(("start", "run"), [(2e4, 2), (9e3, 3)])
def test_half_precision_is_told_of_the_run_in_which_it_is_worst(start: float, run: int) -> None:
    """Each round doubles its argument: its end is near in a round before, and nothing but infinities come behind."""
    report = compare(Repeated().half(), (torch.full((2, 3), start).half(), 3))
    (overflow,) = [each for each in report.precision.origins if each.finding == "overflows"]
    assert (overflow.target, overflow.run) == ("aten.mul.Tensor", run)
    assert f"in run {run} of its graph: inference {overflow.fx_node} " in str(report)
    assert report.precision.half_values == len(report.rows)


class TimesTwo(nn.Module):
    """One graph doubles each argument, so many times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def forward(self, *given: Tensor) -> list[Tensor]:
        return [self.doubled(x) for x in given]

    def doubled(self, x: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        for _ in range(self.times):
            x = x * 2
        return x


@pytest.mark.parametrize("starts", [(4e4, 2e4), (2e4, 4e4)])
def test_an_overflow_that_is_inherited_in_one_run_begins_in_another(starts: tuple[float, float]) -> None:
    """The first product overflows in one run, the second in the other."""
    report = compare(TimesTwo(times=2), tuple(torch.full((2, 3), start).half() for start in starts))
    assert {each.run for each in report.precision.origins} == {1, 2}, str(report)


@pytest.mark.parametrize(("starts", "run"), [((2e4, 1e-6), 2), ((1e-6, 2e4), 1)])
def test_what_underflows_is_graver_than_what_is_near_the_range(starts: tuple[float, float], run: int) -> None:
    report = compare(TimesTwo(times=1), tuple(torch.full((2, 3), start).half() for start in starts))
    (found,) = report.precision.ranges
    assert (found.finding, found.run) == ("underflows", run)


def test_values_of_one_name_in_two_graphs_are_two() -> None:
    class Parted(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x = x * 2
            torch._dynamo.graph_break()
            return x * 3

    report = compare(Parted(), (small().half(),))
    assert {row.fx_node for row in report.rows} == {"mul"}
    assert report.precision.half_values == 2


@pytest.mark.parametrize("limit", [0.0, 0.2])
def test_a_dump_knows_the_module_that_ran(limit: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, aten.tanh.default, limit)
    report = compare(Blocks(), (small().requires_grad_(),), backward=True, dump=tmp_path)
    again = check(tmp_path)
    assert [row.module for row in again.rows] == [row.module for row in report.rows]
    assert str(again.causes[0].module) in str(again)


def test_a_graph_that_runs_otherwise_on_torchs_kernels_tells_no_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Tracing.modules
    monkeypatch.setattr(Tracing, "modules", lambda tracing, graph, ran: right(tracing, graph, ran + 1))
    report = compare(Blocks(), (small().requires_grad_(),), backward=True)
    assert {row.module for row in report.rows} == {""}


def test_a_module_that_a_compiled_function_is_given_has_no_other_ones_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python is in no module of the model as that runs: nobody knows which one it is given."""
    plant(monkeypatch, aten.tanh.default, 0.5)
    (cause,) = compare(Layers(), (small(),)).causes
    assert (cause.run, cause.module) == (3, "layer")


def test_a_dump_holds_the_run_that_departs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, aten.tanh.default, 1.5)
    (cause,) = compare(Layers(), (small().requires_grad_(),), backward=True, dump=tmp_path).causes
    (found,) = check(tmp_path).causes
    assert (found.fx_node, found.graph, found.run) == (cause.fx_node, cause.graph, cause.run)
    assert found.local == cause.local
    assert found.reach is not None
    assert f"layers.{cause.run - 1}.scale" in found.reach.gradients


def test_of_several_faults_the_one_that_ran_first_is_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.repeated = Repeated()

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(ROUNDS):
                x = self.repeated.cell(x)
                torch._dynamo.graph_break()
                x = sines(x)
            return x

    plant(monkeypatch, aten.tanh.default, 0.5)  # the graph of which runs first
    plant(monkeypatch, aten.sin.default, 0.25)
    report = compare(Two(), (small(),), dump=tmp_path)
    assert [(cause.target, cause.run) for cause in report.causes] == [("aten.sin.default", 1), ("aten.tanh.default", 2)]
    assert [row.target for row in departing(report)] == [cause.target for cause in report.causes]
    assert [(cause.target, cause.run) for cause in check(tmp_path).causes] == [
        (cause.target, cause.run) for cause in report.causes
    ]


@torch.compiler.disable(recursive=False)
def sines(x: Tensor) -> Tensor:
    return Sine()(x)


class Sine(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sin() + x


def test_sizes_may_change_from_run_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Growing(Repeated):
        def forward(self, x: Tensor, rounds: int = ROUNDS) -> Tensor:
            for _ in range(rounds):
                x = self.cell(torch.cat([x, 2 * x]))
                torch._dynamo.graph_break()
            return x

    plant(monkeypatch, aten.tanh.default, 5.0)
    (cause,) = compare(Growing(), (small(),), dynamic=True).causes
    assert (cause.target, cause.run > 1) == ("aten.tanh.default", True)


def test_runs_that_are_not_compared_are_told() -> None:
    report = compare(Repeated(), (small(), MAX_RUNS + 3))
    (graph,) = report.graphs
    assert (graph.ran, graph.compared) == (35, 32)
    told = " ".join(report.text().split())
    assert "graph 0 ran 35 times: its first 32 runs were compared; max_runs=35 compares all" in told
    known = {"graph": 0, "phase": "inference", "compile_id": graph.compile_id}
    assert report.as_json()["graphs"] == [{**known, "ran": 35, "recorded": 32, "compared": 32}]
    one = compare(Repeated(), (small(),), max_runs=1)
    assert "its first 1 run was compared; max_runs=4 compares all" in " ".join(one.text().split())


class Doubling(torch.autograd.Function):
    """Doubles the gradient in place, which the caller's graphs have read."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.mul_(2)


@torch.compiler.disable
def doubled(x: Tensor) -> Tensor:
    result: Tensor = Doubling.apply(x)
    return result


class Written(Repeated):
    """What the last run of the backward graph reads, that of the first round, is written after it."""

    def forward(self, x: Tensor, rounds: int = ROUNDS) -> Tensor:
        for i in range(rounds):
            torch._dynamo.graph_break()
            other = x if i else doubled(x)
            x = self.cell(x) + other
        return x


def test_a_run_of_which_an_input_has_been_written_since_is_told() -> None:
    report = compare(Written(), (small().requires_grad_(),), backward=True)
    assert report.verdict == "agree", str(report)
    assert [(graph.ran, graph.recorded, graph.compared) for graph in report.graphs] == [(4, 4, 4), (4, 4, 3)]
    text = " ".join(report.text().split())
    assert "its first 3 runs were compared; an input of the next was written in place since" in text


def test_a_result_that_departs_in_a_run_that_is_not_compared_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, aten.tanh.default, 1.5)
    (cause,) = compare(Repeated(), (small(),), max_runs=2).causes
    assert cause.phase == "eager"
    assert "in a run after the first max_runs" in cause.reason
    (cause,) = compare(Repeated(), (small(),), max_runs=ROUNDS).causes
    assert (cause.target, cause.run) == ("aten.tanh.default", 4)


class Levelled(nn.Module):
    """Of the result of round 3 nothing is left but what its exponential has been rounded by."""

    def __init__(self) -> None:
        super().__init__()
        self.level = nn.Parameter(torch.tensor(2.0).exp())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1, x.exp() - self.level


class Carried(nn.Module):
    """A cell in a loop, which hands on what it returns first, and of which the last round's second is returned."""

    def __init__(self, cell: nn.Module, rounds: int) -> None:
        super().__init__()
        self.cell = cell
        self.rounds = rounds

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.rounds):
            x, y = self.cell(x)
            torch._dynamo.graph_break()
        return y


def test_where_none_departs_the_run_is_shown_in_which_a_value_inherits(monkeypatch: pytest.MonkeyPatch) -> None:
    right = registry.registered()[aten.exp.default]
    monkeypatch.setitem(registry._TABLE, aten.exp.default, lambda op, x: op.Mul(right(op, x), 1 + 2.0**-21))
    report = compare(Carried(Levelled(), ROUNDS), (torch.zeros(2, 3),))
    assert report.verdict == "agree", str(report)
    assert {row.run for row in report.rows} == {3}
    assert [row.target for row in report.rows if row.status == "inherits"] == ["aten.sub.Tensor"]


class Scaled(nn.Module):
    """A small factor beside a product, which an optimizer of ONNX Runtime moves behind it: there 1e39 overflows."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((3, 3), 1000.0))
        self.growth = nn.Parameter(torch.tensor(1e12))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x * self.growth
        return x, (x * 1e-30) @ self.weight


@pytest.mark.parametrize("asked_for", [True, False])
def test_an_optimizer_that_harms_a_later_run_alone_is_seen(
    asked_for: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dort_compare.runtime.session.harmful_for", lambda *_: [])
    report = compare(Carried(Scaled(), 3), (torch.ones(2, 3),), optimized=asked_for, dump=tmp_path)
    first = report.first_divergence
    assert first is not None
    assert (first.target, first.run) == ("aten.mm.default", 3)
    assert "only in the optimized model" in first.reason
    assert {row.run for row in check(tmp_path).rows} == {3}


class Phased(nn.Module):
    """An optimizer harms the product in every round; the sine is of another number in each."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((3, 3), 1000.0))

    def forward(self, x: Tensor, phase: Tensor) -> tuple[Tensor, Tensor]:
        return (x * 1e-30) @ self.weight + phase.sin(), phase + 1


class Phases(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = Phased()

    def forward(self, x: Tensor, phase: Tensor) -> Tensor:
        for _ in range(3):
            y, phase = self.cell(x, phase)
            torch._dynamo.graph_break()
        return y


def test_what_departs_optimized_alone_hides_no_fault_of_a_later_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dort_compare.runtime.session.harmful_for", lambda *_: [])
    plant(monkeypatch, aten.sin.default, 1.5)
    report = compare(Phases(), (torch.full((2, 3), 1e36), torch.tensor(0.1)), optimized=True)
    found = [(cause.target, cause.run) for cause in report.causes]
    assert found == [("aten.sin.default", 3), ("aten.mm.default", 1)]


def test_a_program_that_departs_in_a_later_run_alone_says_in_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The optimized model is not to be had; without it only what the program returned tells."""

    def refusing(*_args: object) -> None:
        raise ExecutionError("no optimized model")

    monkeypatch.setattr("dort_compare.runtime.session.harmful_for", lambda *_: [])
    monkeypatch.setattr("dort_compare.measure.optimized.optimized_model", refusing)
    cause = compare(Carried(Scaled(), 3), (torch.ones(2, 3),), dump=tmp_path).first_divergence
    assert cause is not None
    assert cause.reason.startswith("in run 3 of its graph: the program that ran departs from its lowered model")
    assert cause.run == 3
    assert {row.run for row in check(tmp_path).rows} == {3}


def test_changes_of_dtype_are_counted_once() -> None:
    (cast,) = compare(Repeated().half(), (small(),)).precision.casts
    assert (cast.target, cast.from_dtype) == ("aten.mul.Tensor", "float16")
