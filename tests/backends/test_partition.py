"""What cannot run in ONNX Runtime runs in eager torch inside the compiled graph, and says so."""

from __future__ import annotations

import gc
import json
import logging
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

from dort_compare import DebugBackend, compare, debug_compiler
from dort_compare.errors import MissingLoweringError
from dort_compare.lowering import registered, registry
from dort_compare.offline import check
from dort_compare.provenance import FX_NODE, GRAPH, metadata_of

THIS = Path(__file__).name


@pytest.fixture(autouse=True)
def erfinv_has_no_lowering(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands for whatever has none, and decomposes into a prim of which the same is true."""
    registered()
    for target in (torch.ops.aten.erfinv.default, torch.ops.prims.erf_inv.default):
        monkeypatch.delitem(registry._TABLE, target)


@pytest.fixture
def erf_has_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """In float64: ONNX Runtime's CPU provider has none for Erf."""
    registered()
    monkeypatch.setitem(registry._TABLE, torch.ops.aten.erf.default, lambda op, x: op.Erf(x))


def assert_close(got: Any, expected: Any) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


def names(graph: Any) -> set[str]:
    return {node.name for node in graph.graph_module.graph.nodes if node.op == "call_function"}


def op_types(backend: DebugBackend) -> list[list[str]]:
    return [[node.op_type for node in graph.onnx_model.graph.node] for graph in backend.graphs]


def like_eager(function: Callable[..., Any], *args: Any, **options: Any) -> DebugBackend:
    """Runs a function compiled and plain, backward too where there is one; both have to agree."""
    backend = DebugBackend(**options)
    results = []
    for call in (function, torch.compile(function, backend=backend)):
        own = [arg.detach().clone().requires_grad_(arg.requires_grad) for arg in args]
        torch.manual_seed(3)
        result = call(*own)
        loss = result.abs().sum() if isinstance(result, Tensor) and result.requires_grad else None
        gradients = torch.autograd.grad(loss, [arg for arg in own if arg.requires_grad]) if loss is not None else ()
        results.append((result, gradients))
    assert_close(results[1], results[0])
    return backend


class Decomposition(nn.Module):
    """Something that ONNX has no word for between two layers that it has."""

    def __init__(self, between: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.between, self.last = nn.Linear(4, 4), between, nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.between(torch.tanh(self.first(x))))


BETWEEN = {
    "svd": lambda x: torch.linalg.svd(x)[0],
    "special": lambda x: torch.erfinv(x / 2),
    "complex": lambda x: torch.complex(x, x.sin()).acos().abs(),
    "dropout": lambda x: nn.functional.dropout(x, 0.5),
    "checkpointed dropout": lambda x: checkpoint(lambda y: nn.functional.dropout(y.sin(), 0.5), x, use_reentrant=False),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_a_model_with_a_foreign_operation_trains_like_eager(name: str) -> None:
    torch.manual_seed(1)
    report = compare(Decomposition(BETWEEN[name]), (torch.randn(4, 4),), backward=True)
    assert report.verdict == "agree", str(report)
    assert report.fallbacks
    assert {row.phase for row in report.rows} == {"forward", "backward"}
    assert not {(each.phase, each.fx_node) for each in report.fallbacks} & {
        (row.phase, row.fx_node) for row in report.rows
    }


@pytest.mark.parametrize("backend", ["dort", "dort_debug"])
def test_dropout_draws_what_eager_draws(backend: str) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.Linear(8, 8), nn.Dropout(0.6))
    x = torch.ones(5, 8)
    torch.manual_seed(11)
    masks = model(x) == 0
    compiled = torch.compile(model, backend=backend)
    torch.manual_seed(11)
    assert torch.equal(compiled(x) == 0, masks)
    assert not torch.equal(compiled(x) == 0, masks)


def test_random_ops_keep_their_order() -> None:
    """The first reads a piece that ends after the second: cut carelessly, it would be drawn second."""

    def function(x: Tensor) -> tuple[Tensor, ...]:
        first = torch.bernoulli(torch.sigmoid(x))
        second = torch.rand(4, 4)
        return first, second, torch.tanh(x) * 2

    x = torch.randn(4, 4)
    torch.manual_seed(5)
    expected = function(x)
    torch.manual_seed(5)
    got = torch.compile(function, backend="dort")(x)
    assert torch.equal(got[0], expected[0])
    assert torch.equal(got[1], expected[1])


class Unread(nn.Module):
    """Drops out what nobody reads, and then what it returns."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.linear(x)
        nn.functional.dropout(hidden.sin(), 0.5)
        return nn.functional.dropout(hidden, 0.5)


@pytest.mark.parametrize("is_training", [False, True])
@pytest.mark.parametrize("backend", ["dort", "dort_debug"])
def test_what_nobody_reads_is_drawn_as_in_eager(backend: str, is_training: bool) -> None:
    model, x = Unread(), torch.ones(5, 8)
    compiled = torch.compile(model, backend=backend)
    with torch.set_grad_enabled(is_training):
        torch.manual_seed(11)
        expected = model(x)
        torch.manual_seed(11)
        torch.testing.assert_close(compiled(x), expected)
    report = compare(model, (x,), backward=is_training)
    assert report.verdict == "agree", str(report)


def noisy(is_read: bool) -> type[torch.autograd.Function]:
    """Its backward pass draws numbers that do not depend on what comes in."""

    class Noisy(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            drawn = torch.rand(5, 8)
            return grad * drawn if is_read else grad

    return Noisy


class DrawsInBackward(nn.Module):
    def __init__(self, is_read: bool, is_broken: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.noisy, self.is_broken = noisy(is_read), is_broken

    def forward(self, x: Tensor) -> Tensor:
        x = self.noisy.apply(self.linear(x)).sin()
        if self.is_broken:
            torch._dynamo.graph_break()
        return nn.functional.dropout(x, 0.5)


@pytest.mark.parametrize("is_broken", [False, True])
@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("backend", ["dort", "dort_debug"])
def test_what_the_backward_pass_draws_is_drawn_there(backend: str, is_read: bool, is_broken: bool) -> None:
    model, x = DrawsInBackward(is_read, is_broken), torch.randn(5, 8)
    found = []
    for each in (model, torch.compile(model, backend=backend)):
        torch.manual_seed(11)
        model.zero_grad()
        result = each(x)
        result.sum().backward()
        found.append((result.detach(), model.linear.weight.grad, torch.rand(3)))
    torch.testing.assert_close(found[1], found[0])
    report = compare(model, (x,), backward=True)
    assert report.verdict == "agree", str(report)


def test_of_two_dropouts_nothing_else_falls_back() -> None:
    """They are tied to keep their order, and return tuples."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(), nn.Linear(3, 3), nn.Dropout())
    report = compare(model, (torch.ones(2, 3),), backward=True)
    assert report.verdict == "agree", str(report)
    assert [each.target for each in report.fallbacks] == ["aten.native_dropout.default"] * 2


def test_custom_ops_run_with_their_own_gradient() -> None:
    @torch.library.custom_op("dort_tests::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3

    cube.register_fake(torch.empty_like)
    cube.register_autograd(
        lambda ctx, gradient: gradient * 3 * ctx.saved_tensors[0] ** 2,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    backend = like_eager(lambda x: cube(x * 2) + 1, torch.randn(3, requires_grad=True))
    assert {each.target for each in backend.fallbacks} == {"dort_tests.cube.default"}
    assert "backward" in {graph.phase for graph in backend.graphs}


def test_a_custom_op_that_writes_its_argument_writes_it() -> None:
    @torch.library.custom_op("dort_tests::fill", mutates_args=("x",))
    def fill(x: Tensor) -> None:
        x.fill_(7)

    def function(x: Tensor) -> Tensor:
        y = x * 2
        fill(y)
        return y + x

    (fallback,) = like_eager(function, torch.ones(3)).fallbacks
    assert fallback.target == "torch.ops.higher_order.auto_functionalized_v2 of dort_tests.fill.default"


def test_conditions_with_what_has_no_lowering_run_in_torch() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.erfinv() + 1, lambda x: x.cos(), (x / 2,)) * 3

    for sign in (1, -1):
        backend = like_eager(function, sign * torch.ones(3))
    assert [each.target for each in backend.fallbacks] == ["torch.ops.higher_order.cond"]


class BesideBranches(nn.Module):
    """An op without a lowering that reads what a condition within a condition computed."""

    def forward(self, x: Tensor) -> Tensor:
        return (torch.cond(x.sum() > 0, lambda x: x.sin() * 2, self.otherwise, (x,)) / 3).erfinv() * x

    @staticmethod
    def otherwise(x: Tensor) -> Tensor:
        return torch.cond(x[0] > -2, torch.cos, torch.exp, (x,))


@pytest.mark.parametrize("first", [1.0, *(pytest.param(first, marks=pytest.mark.slow) for first in (-1.0, -3.0))])
def test_beside_conditions_only_what_has_no_lowering_runs_in_torch(first: float, tmp_path: Path) -> None:
    x = torch.tensor([first, 0.3, -0.4], requires_grad=True)
    backend = like_eager(BesideBranches(), x, dump=tmp_path)
    assert {each.target for each in backend.fallbacks} == {"prims.erf_inv.default"}
    assert any("If" in of_graph for of_graph in op_types(backend))
    report = compare(BesideBranches(), (x,), backward=True)
    assert (report.verdict, len(report.fallbacks)) == ("agree", len(backend.fallbacks)), str(report)
    assert check(tmp_path).verdict == "agree"


@pytest.mark.parametrize("fallback", [True, False])
def test_beside_conditions_a_factorization_runs_in_onnx_runtime(fallback: bool) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)) @ torch.linalg.inv(x + 9 * torch.eye(5))

    for sign in (1, -1):
        backend = like_eager(function, sign * torch.rand(5, 5), fallback=fallback)
        assert backend.fallbacks == []
    with pytest.raises(torch.linalg.LinAlgError):
        torch.compile(function, backend=DebugBackend(fallback=fallback))(-9 * torch.eye(5))


def test_complex_inputs_and_outputs_pass() -> None:
    z = torch.randn(3, dtype=torch.complex64)
    got = torch.compile(lambda z: (z * 2, z.abs() + 1), backend="dort")(z)
    assert_close(got, (z * 2, z.abs() + 1))


class Float8(nn.Module):
    """A weight of eight bits, raised where it is read, and activations rounded to eight."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.weight = nn.Buffer(torch.randn(4, 4).to(torch.float8_e4m3fn))

    def forward(self, x: Tensor) -> Tensor:
        return (self.first(x) @ self.weight.float().t()).to(torch.float8_e5m2)


@pytest.mark.parametrize("backend", ["dort", "dort_debug"])
def test_tensors_of_float8_pass(backend: str) -> None:
    """ONNX Runtime takes and gives none in Python."""
    model, x = Float8(), torch.randn(3, 4)
    assert_close(torch.compile(model, backend=backend)(x).float(), model(x).float())
    report = compare(model, (x,), backward=True)
    assert report.verdict == "agree", str(report)
    assert report.rows
    assert {each.phase for each in report.fallbacks} == {"forward", "backward"}


def test_a_backward_graph_of_complex_tangents_alone_passes() -> None:
    z, w = (torch.randn(3, dtype=torch.complex64, requires_grad=True) for _ in range(2))
    backend = like_eager(lambda z, w: torch.acos(z) + w, z, w)
    assert {each.target for each in backend.fallbacks} == {"aten.acos.default"}


@pytest.mark.parametrize("whole", [False, True])
def test_a_mask_as_index(whole: bool) -> None:
    backend = DebugBackend()
    compiled = torch.compile(lambda x: (x[x > 0] * 2).exp(), backend=backend, fullgraph=whole)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=whole):
        for _ in range(3):
            x = torch.randn(4, 5)
            assert_close(compiled(x), (x[x > 0] * 2).exp())
    if whole:
        assert any("NonZero" in types for types in op_types(backend))


@torch._dynamo.config.patch(capture_scalar_outputs=True)
def test_numbers_read_from_tensors() -> None:
    def function(x: Tensor) -> tuple[Tensor, Any]:
        number = x.sum().item()
        return x * number + 1, number * 2 > 3

    for x in (torch.ones(3), -torch.ones(3)):
        assert_close(torch.compile(function, backend="dort", fullgraph=True)(x), function(x))


@pytest.mark.usefixtures("erf_has_no_kernel")
def test_a_dtype_without_kernel_falls_back_and_its_neighbours_do_not() -> None:
    backend = like_eager(lambda x: torch.erf(x * 2) + 1, torch.randn(3, dtype=torch.float64))
    assert op_types(backend) == [["Mul"], ["Add"]]
    (fallback,) = backend.fallbacks
    assert (fallback.phase, fallback.fx_node, fallback.target) == ("inference", "erf", "aten.erf.default")
    assert fallback.reason == "CPUExecutionProvider has no kernel of Erf for float64"
    assert THIS in fallback.source


def test_symbolic_sizes_reach_the_pieces() -> None:
    backend = DebugBackend()
    function = lambda x: torch.erfinv(x / 9).reshape(-1) + x.shape[0]  # noqa: E731
    compiled = torch.compile(function, backend=backend, dynamic=True)
    for rows in (3, 5):
        x = torch.randn(rows, 4)
        assert_close(compiled(x), function(x))
    assert len(backend.graphs) == 2


def test_as_strided_reads_the_memory_that_eager_has() -> None:
    like_eager(lambda x: (x * 2)[1:, 1:].as_strided((2, 2), (1, 2)) + 1, torch.randn(4, 4))
    like_eager(lambda x: (x * 2).t().as_strided((2, 2), (1, 2), 1) + 1, torch.randn(4, 4))


def test_views_alone_are_no_piece() -> None:
    backend = like_eager(lambda x: torch.erfinv(torch.erfinv(x).t()).unsqueeze(0), torch.rand(3, 4) / 2)
    assert backend.graphs == []
    assert [each.target for each in backend.fallbacks] == ["prims.erf_inv.default"] * 2


def test_pieces_keep_names_and_provenance_and_record_their_inputs() -> None:
    backend = like_eager(lambda x: torch.erfinv(torch.sigmoid(x) / 2) * 3, torch.randn(3, requires_grad=True))
    first, second, *backward = backend.graphs
    assert names(first) >= {"sigmoid", "div"}
    assert "mul" in names(second)
    assert [graph.index for graph in backend.graphs] == list(range(len(backend.graphs)))
    assert {graph.phase for graph in (first, second)} == {"forward"}
    assert {graph.phase for graph in backward} == {"backward"}
    for graph in backend.graphs:
        model = graph.onnx_model
        assert metadata_of(model)[GRAPH] == str(graph.index)
        for node in model.graph.node:
            assert metadata_of(node)[FX_NODE] in names(graph)
    returned = [output.name for output in first.signature.outputs]
    divided = first.program(*first.runs[0].inputs)[returned.index("div")]
    assert_close(second.named_inputs()["erf_inv"], torch.erfinv(divided))


def test_every_piece_is_dumped(tmp_path: Path) -> None:
    for backend in ("dort", "dort_debug"):
        folder = tmp_path / backend
        torch._dynamo.reset()
        torch.compile(lambda x: torch.erfinv(x / 2) * 3, backend=backend, options={"dump": folder})(torch.rand(3))
        graphs = json.loads((folder / "manifest.json").read_text())["graphs"]
        assert list(graphs) == ["model_0", "model_1"]
        assert all(("inputs" in entry) == (backend == "dort_debug") for entry in graphs.values())
        assert "erfinv" in (folder / "model_1.txt").read_text()


def test_the_report_counts_what_fell_back() -> None:
    report = compare(Decomposition(torch.erfinv), (torch.randn(4, 4) / 4,))
    assert report.verdict == "agree", str(report)
    assert "values (1 node ran in eager torch)" in str(report).splitlines()[0]
    assert "ran in eager torch, not in ONNX Runtime, and not compared: 1 node\n  no lowering:\n" in str(report)
    assert "    1 prims.erf_inv.default (FX node erf_inv," in str(report)
    assert f"{__file__}:" in str(report)
    (entry,) = report.as_json()["fallbacks"]
    assert entry["fx_node"] == "erf_inv"
    assert set(entry) == {"phase", "fx_node", "target", "source", "reason"}
    assert [row.fx_node for row in report.rows].count("erf_inv") == 0


def test_a_model_of_which_nothing_runs_in_onnx_runtime_does_not_agree() -> None:
    class Foreign(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.erfinv(x)

    report = compare(Foreign(), (torch.rand(3) / 2,))
    assert (report.verdict, report.rows, len(report.fallbacks)) == ("diverge", (), 1)
    assert str(report).startswith("diverge: nothing was compared: all that was compiled ran in eager torch")
    assert all(output.ok for output in report.outputs)


def test_a_summary_is_logged_once_a_graph(caplog: pytest.LogCaptureFixture) -> None:
    compiled = torch.compile(lambda x: torch.erfinv(torch.erfinv(x) * 2) + 1, backend="dort")
    for _ in range(3):
        compiled(torch.rand(3) / 4)
    (record,) = [record for record in caplog.records if record.name == "dort_compare"]
    assert record.levelno == logging.WARNING
    head, reason, op = record.getMessage().splitlines()
    assert head == (
        "inference graph: 2 of 4 nodes run in eager torch, not in ONNX Runtime (fallback=False refuses them):"
    )
    assert (reason, op.split(" (")[0]) == ("  no lowering:", "    2 prims.erf_inv.default")


def test_a_graph_that_runs_whole_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert like_eager(lambda x: x.tanh() * 2, torch.randn(3, requires_grad=True)).fallbacks == []
    assert not [record for record in caplog.records if record.name == "dort_compare"]


@pytest.mark.parametrize("backend", ["dort", "dort_debug"])
def test_fallback_off_is_an_error_in_one_line(backend: str) -> None:
    compiled = torch.compile(torch.erfinv, backend=backend, options={"fallback": False})
    with pytest.raises(Exception, match=r"no lowering for prims\.erf_inv\.default") as caught:
        compiled(torch.rand(3))
    assert isinstance(caught.value.inner_exception, MissingLoweringError)  # type: ignore[attr-defined]
    assert "\n" not in str(caught.value.inner_exception)  # type: ignore[attr-defined]


@pytest.mark.usefixtures("erf_has_no_kernel")
def test_fallback_off_refuses_a_missing_kernel() -> None:
    with pytest.raises(Exception, match=r"ONNX Runtime failed at FX node erf \(aten.erf.default"):
        torch.compile(torch.erf, backend="dort", options={"fallback": False})(torch.rand(3, dtype=torch.float64))


def test_what_pytorchs_exporter_refuses_runs_in_torch_whole() -> None:
    backend = like_eager(lambda x: torch.igamma(x + 1, x) * 2, torch.rand(3), exporter="torch")
    assert backend.graphs == []
    assert len(backend.fallbacks) == 3
    assert {"PyTorch's exporter cannot convert aten.igamma" in each.reason for each in backend.fallbacks} == {True}


@pytest.mark.usefixtures("erf_has_no_kernel")
def test_a_piece_that_fails_after_all_runs_in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    from dort_compare.backends import refused_calls

    monkeypatch.setattr(refused_calls, "missing_kernels", lambda graph, providers: {})
    backend = like_eager(lambda x: torch.erfinv(torch.erf(x)) * 2, torch.rand(3, dtype=torch.float64))
    assert op_types(backend) == [["Mul"]]
    erf = next(each for each in backend.fallbacks if each.fx_node == "erf")
    assert "ONNX Runtime failed at FX node erf" in erf.reason


def test_the_debug_compiler_falls_back_and_stores_it() -> None:
    graph = make_fx(lambda x: (torch.erfinv(x), x * 2), tracing_mode="fake")(torch.rand(3))
    storage: dict[str, Any] = {}
    x = torch.rand(3, requires_grad=True)
    arguments = [x]
    results = debug_compiler(graph, arguments, storage=storage)(arguments)
    assert arguments == []
    assert not any(result.requires_grad for result in results)
    assert_close(list(results), [torch.erfinv(x.detach()), x.detach() * 2])
    assert [each.fx_node for each in storage["fallbacks"]] == ["erfinv"]
    assert len(storage["graphs"]) == 1


def test_arguments_are_freed_after_their_last_use() -> None:
    seen: list[bool] = []
    holder: list[weakref.ref[Tensor]] = []

    @torch.library.custom_op("dort_tests::look", mutates_args=())
    def look(x: Tensor) -> Tensor:
        gc.collect()
        seen.append(holder[0]() is None)
        return x.clone()

    look.register_fake(torch.empty_like)
    graph = make_fx(lambda x: (look(torch.ops.aten.erfinv(x) * 2),), tracing_mode="fake")(torch.rand(3))
    compiled = DebugBackend(max_runs=0).compile_graph(graph, [torch.rand(3)], phase="inference")
    arguments = [torch.rand(3)]
    holder.append(weakref.ref(arguments[0]))
    compiled(arguments)
    assert seen == [True]


def test_an_error_while_running_is_torchs_own() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.linalg.cholesky(x * 2) + 1

    with pytest.raises(torch.linalg.LinAlgError) as caught:
        torch.compile(function, backend="dort")(-torch.eye(3))
    assert "While executing" not in str(caught.value)


def test_views_that_a_refused_piece_made_itself_are_no_fallbacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece is handed what a transposed operand is of, and transposes it itself."""
    monkeypatch.setattr("dort_compare.backends.building.Program", lambda *_, **__: 1 / 0)
    x = torch.randn(4, 3).t()
    backend = like_eager(lambda x: nn.functional.dropout(x.sin(), 0.5), x)
    assert {each.target for each in backend.fallbacks} == {"aten.native_dropout.default", "aten.sin.default"}
