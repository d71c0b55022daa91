"""Branches and loops whose course the data decide on, within ONNX Runtime and from a dump."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._higher_order_ops import while_loop

from dort_compare import DebugBackend, compare
from dort_compare.errors import MissingLoweringError
from dort_compare.lowering import registered, registry
from dort_compare.offline import check
from dort_compare.trace.lockstep import lockstep
from dort_compare.trace.replay import Replay

aten = torch.ops.aten


class Branches(nn.Module):
    """Of two results, one without dimensions; both hold constants, one branches once more."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        def above(x: Tensor) -> tuple[Tensor, Tensor]:
            return self.norm(self.linear(x)).softmax(-1), (x * torch.tensor([1.0, 2.0, 3.0, 4.0])).sum()

        def below(x: Tensor) -> tuple[Tensor, Tensor]:
            found = torch.cond(x.min() < -2, lambda x: x.sin(), lambda x: x.exp(), (x,))
            return torch.zeros_like(x) + found, (x * torch.tensor([5.0, 6.0, 7.0, 8.0])).mean()

        first, second = torch.cond(x.sum() > 0, above, below, (x,))
        return first * second


class Loop(nn.Module):
    """How often it goes round, the data decide on: not at all where all are small."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        def goes_on(count: Tensor, x: Tensor) -> Tensor:
            return (x.abs().max() > 0.1) & (count < 20)

        def step(count: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return count + 1, self.linear(x).tanh() * 0.5

        return while_loop(goes_on, step, (torch.zeros((), dtype=torch.int64), x))


INPUTS = {
    "above": lambda: torch.rand(3, 4) + 0.2,
    "below": lambda: -torch.rand(3, 4) - 0.2,
    "far below": lambda: -torch.rand(3, 4) - 2.2,
    "small": lambda: torch.rand(3, 4) * 0.01,
}


@pytest.fixture(params=[Branches, Loop])
def model(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(0)
    return request.param()


@pytest.fixture
def no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("code was made of a graph")

    monkeypatch.setattr(fx.GraphModule, "recompile", refuse)
    monkeypatch.setattr(fx.Graph, "python_code", refuse)
    monkeypatch.setattr(fx.GraphModule, "__call__", refuse)


def test_one_model_takes_every_course(model: nn.Module) -> None:
    backend = DebugBackend(fallback=False)
    compiled = torch.compile(model, backend=backend)
    with torch.no_grad():
        for make in INPUTS.values():
            x = make()
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-6)
    (graph,) = backend.graphs
    (node,) = (node for node in graph.onnx_model.graph.node if node.op_type in ("If", "Loop"))
    assert node.name.startswith(("cond.", "while_loop."))


@pytest.mark.parametrize("make", INPUTS.values(), ids=INPUTS)
def test_what_a_course_comes_to_is_compared(make: Callable[[], Tensor], model: nn.Module, tmp_path: Path) -> None:
    backward = isinstance(model, Branches)
    report = compare(model, (make(),), backward=backward, dump=tmp_path)
    assert report.verdict == "agree", report
    assert not report.fallbacks
    called = {row.target for row in report.rows}
    assert called & {"torch.ops.higher_order.cond", "torch.ops.higher_order.while_loop"}
    assert {row.status for row in report.rows} == {"ok"}
    offline = check(tmp_path)
    assert offline.verdict == "agree"
    assert len(offline.rows) == len(report.rows)


@pytest.mark.parametrize("make", ["above", "small"])
def test_the_gradient_of_a_loop(make: str) -> None:
    """Torch saves what is carried after each round, one row of it where there is no round."""
    torch.manual_seed(0)
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        report = compare(Loop(), (INPUTS[make](),), backward=True, loss=lambda found: found[1].sin().sum())
    assert report.verdict == "agree", report
    assert not report.fallbacks
    assert {row.status for row in report.rows} == {"ok"}
    assert "torch.ops.higher_order.while_loop_stack_output" in {row.target for row in report.rows}
    assert {row.name for row in report.outputs if row.kind == "gradient"} >= {"linear.weight", "linear.bias"}


@pytest.mark.parametrize(("make", "verdict"), [("above", "diverge"), ("below", "agree")])
def test_a_fault_in_a_branch_departs_where_it_is_taken(
    make: str, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    softmax = registered()[aten._softmax.default]
    table: dict[Any, Any] = registry._TABLE
    monkeypatch.setitem(table, aten._softmax.default, lambda op, x, *rest: op.Mul(softmax(op, x, *rest), 1.01))
    torch.manual_seed(0)
    report = compare(Branches(), (INPUTS[make](),))
    assert report.verdict == verdict
    assert {cause.target for cause in report.causes} == ({"torch.ops.higher_order.cond"} if report.causes else set())


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_may_be_symbolic(dynamic: bool | None) -> None:
    model = Loop()
    compiled = torch.compile(model, backend=DebugBackend(fallback=False), dynamic=dynamic)
    with torch.no_grad():
        for rows in (3, 5, 2):
            x = torch.rand(rows, 4)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-6)


def asserting(x: Tensor) -> Tensor:
    aten._assert_async.msg((x >= 0).all(), "below 0")
    return x.exp()


@pytest.mark.parametrize(
    ("branch", "reason"),
    [
        (lambda x: x.half().exp().float(), "half precision in a graph that it takes"),
        (
            lambda x: torch.nn.functional.dropout(x),
            "no lowering for aten.native_dropout.default in a graph that it takes",
        ),
        (asserting, "a check in a graph that it takes"),
    ],
)
def test_what_a_branch_cannot_hold_runs_in_eager_torch(branch: Callable[[Tensor], Tensor], reason: str) -> None:
    backend = DebugBackend()
    function = lambda x: torch.cond(x.sum() > 0, branch, lambda x: x.sin(), (x * 2,)) + 1  # noqa: E731
    x = torch.rand(3, 4)
    results = []
    for call in (function, torch.compile(function, backend=backend)):
        torch.manual_seed(0)
        results.append(call(x))
    torch.testing.assert_close(results[1], results[0])
    assert [fallback.reason for fallback in backend.fallbacks] == [reason]


def test_what_has_no_lowering_in_a_branch_is_named() -> None:
    function = lambda x: torch.cond(x.sum() > 0, torch.nn.functional.dropout, lambda x: x.sin(), (x,))  # noqa: E731
    with pytest.raises(Exception, match=r"no lowering for aten\.native_dropout\.default") as raised:
        torch.compile(function, backend=DebugBackend(fallback=False))(torch.rand(3))
    assert isinstance(raised.value.__cause__ or raised.value, (MissingLoweringError, RuntimeError))


@pytest.fixture
def branch() -> tuple[fx.GraphModule, Tensor]:
    """A graph of which one branch names a dtype itself, and its input, above 0."""
    backend = DebugBackend(fallback=False)
    third = lambda x: torch.full_like(x, 1 / 3, dtype=torch.float32) * x  # noqa: E731
    function = lambda x: torch.cond(x.sum() > 0, third, torch.sin, (x,))  # noqa: E731
    x = torch.rand(3, 4)
    torch.compile(function, backend=backend)(x)
    return backend.graphs[0].graph_module, x


def test_the_referee_computes_a_branch_in_float64(branch: tuple[fx.GraphModule, Tensor]) -> None:
    graph_module, x = branch
    exact = [step.exact for step in lockstep(graph_module, [x])][-1]
    torch.testing.assert_close(exact, x.double() / 3, rtol=1e-14, atol=0)


@pytest.mark.parametrize("in_float64", [True, False])
def test_a_branch_is_run_again(in_float64: bool, branch: tuple[fx.GraphModule, Tensor], no_code: None) -> None:
    graph_module, x = branch
    (node,) = graph_module.graph.find_nodes(op="call_function", target=torch.ops.higher_order.cond)
    condition, (operand,) = node.args[0], node.args[3]
    again = Replay({condition.name: torch.tensor(True), operand.name: x}).value(*node.users, in_float64=in_float64)
    assert again is not None
    expected = x.double() / 3 if in_float64 else x * torch.tensor(1 / 3)
    torch.testing.assert_close(again, expected, rtol=1e-14, atol=0)


def test_no_code_is_made_of_a_graph_in_a_dump(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    compare(Branches(), (INPUTS["above"](),), dump=tmp_path)
    request.getfixturevalue("no_code")
    assert check(tmp_path).verdict == "agree"


def test_a_graph_within_a_graph_of_a_dump_calls_nothing_else(tmp_path: Path) -> None:
    compare(Branches(), (INPUTS["above"](),), dump=tmp_path)
    (path,) = (each for each in tmp_path.rglob("*.json") if '"aten._softmax.default"' in each.read_text())
    path.write_text(json.dumps(json.loads(path.read_text())).replace("aten._softmax.default", "os.system"))
    with pytest.raises(Exception, match=r"calls 'os\.system', which graphs of a dump may not call"):
        check(tmp_path)
