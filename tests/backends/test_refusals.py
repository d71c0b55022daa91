"""What goes wrong, and what is left of it: subclasses, interrupts, kernels that fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from of_function import Of
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.testing import assert_close
from torch.testing._internal.two_tensor import TwoTensor
from torch.torch_version import TorchVersion

from dort_compare import DebugBackend, compare, debug_compiler
from dort_compare.backends import aot, building
from dort_compare.dump import files, graphs_in
from dort_compare.errors import ExecutionError, UnsupportedGraphError, UsageError
from dort_compare.runtime import program

THIS = Path(__file__).name


# Tensor subclasses.


class Plain(Tensor):
    """A subclass that adds nothing."""


class Named(Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(func, types, args, kwargs or {})


class Weight(nn.Parameter):
    """A parameter of a class of its own."""


class NamedWeight(Named, nn.Parameter):
    """One that looks at what it is read by, too."""


def doubled(x: Tensor) -> Tensor:
    return (x * 2).sin()


@pytest.mark.parametrize("kind", [Plain, Named, NamedWeight])
def test_a_subclass_runs_in_torch(kind: type, caplog: pytest.LogCaptureFixture) -> None:
    backend = DebugBackend()
    x = kind(torch.ones(3)) if kind is NamedWeight else torch.ones(3).as_subclass(kind)
    got = torch.compile(doubled, backend=backend)(x)
    assert type(got) is type(doubled(x))
    assert torch.equal(got, doubled(x))
    assert backend.graphs == []
    reason = f"an argument is a {kind.__qualname__}, a tensor subclass without __tensor_flatten__"
    assert {fallback.reason for fallback in backend.fallbacks} == {reason}
    (record,) = [record for record in caplog.records if record.name == "dort_compare"]
    phase = "forward" if got.requires_grad else "inference"
    assert record.getMessage().startswith(f"{phase} graph: 2 of 2 nodes run in eager torch")


@pytest.mark.skipif(TorchVersion(torch.__version__) < "2.13", reason="AOTAutograd takes none")
def test_a_parameter_of_a_class_of_its_own_runs_in_onnx_runtime() -> None:
    model = nn.Linear(2, 3)
    model.weight = Weight(model.weight.data)
    x = torch.randn(4, 2, generator=torch.Generator().manual_seed(0))
    backend = DebugBackend(fallback=False)
    results = []
    for call in (model, torch.compile(model, backend=backend)):
        y = call(x)
        results.append((y, *torch.autograd.grad(y.sin().sum(), tuple(model.parameters()))))
    torch.testing.assert_close(results[1], results[0])
    assert [graph.phase for graph in backend.graphs] == ["forward", "backward"]


def test_a_subclass_is_refused_in_one_line_where_nothing_may_fall_back() -> None:
    compiled = torch.compile(doubled, backend="dort", options={"fallback": False})
    with pytest.raises(Exception, match=r"a tensor subclass without __tensor_flatten__; give a plain one") as caught:
        compiled(torch.ones(3).as_subclass(Plain))
    inner = caught.value.inner_exception  # type: ignore[attr-defined]
    assert isinstance(inner, UnsupportedGraphError)
    assert "\n" not in str(inner)


@pytest.mark.parametrize(
    "x", [nn.Parameter(torch.ones(3)), nn.Buffer(torch.ones(3)), TwoTensor(torch.ones(3), torch.zeros(3))], ids=type
)
def test_what_autograd_takes_apart_runs_in_onnx_runtime(x: Tensor) -> None:
    backend = DebugBackend()
    got = torch.compile(doubled, backend=backend)(x)
    torch.testing.assert_close(got, doubled(x))
    assert backend.fallbacks == []
    assert len(backend.graphs) == 1


def test_nested_tensors_run_in_onnx_runtime() -> None:
    """Their sizes are inputs of the graphs, which only hand them on."""
    model = nn.Sequential(nn.Linear(2, 3), nn.GELU(), nn.LayerNorm(3))
    rows = [torch.randn(count, 2, generator=torch.Generator().manual_seed(count)) for count in (2, 3)]
    backend = DebugBackend(fallback=False)
    results = []
    for call in (model, torch.compile(model, backend=backend)):
        x = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)
        y = call(x)
        parameters = tuple(model.parameters())
        results.append((y.values(), *torch.autograd.grad(y.values().sum(), parameters)))
    torch.testing.assert_close(results[1], results[0])
    assert [graph.phase for graph in backend.graphs] == ["forward", "backward"]


@pytest.mark.parametrize("op", ["placeholder", "get_attr"])
def test_an_object_that_a_graph_only_returns_keeps_nothing_from_onnx_runtime(op: str) -> None:
    """As the process group that a backward graph is handed for a gradient of a distributed tensor."""
    group, x = object(), torch.ones(3)
    graph = fx.Graph()
    given = graph.placeholder("x")
    given.meta["val"] = x
    held = graph.create_node(op, "group", (), {}, "group")
    held.meta |= {"val": group} if op == "placeholder" else {}
    sine = graph.call_function(torch.ops.aten.sin.default, (given,))
    sine.meta["val"] = x
    graph.output((sine, held))
    arguments = [x, group] if op == "placeholder" else [x]
    storage: Any = {}
    compiled = debug_compiler(fx.GraphModule({"group": group}, graph), arguments, storage=storage, fallback=False)
    got, handed = compiled(arguments)
    torch.testing.assert_close(got, torch.ones(3).sin())
    assert handed is group
    assert len(storage["graphs"]) == 1


# Gradients without memory.


@pytest.mark.parametrize("differentiate", [
    lambda f, x: torch.autograd.functional.jacobian(f, x, vectorize=True),
    lambda f, x: torch.autograd.grad(f(x), x, torch.eye(3), is_grads_batched=True),
], ids=["jacobian", "is_grads_batched"])  # fmt: skip
def test_many_gradients_at_once_are_refused_in_one_line_that_names_the_mend(differentiate: Callable[..., Any]) -> None:
    with pytest.raises(ExecutionError, match=r"^a tensor without memory of its own.*; take one gradient at a time"):
        differentiate(torch.compile(doubled, backend="dort"), torch.ones(3, requires_grad=True))


# Derivatives in forward mode, and memory that is not there.


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "compiled before"])
def test_derivatives_in_forward_mode_are_refused_not_lost(warm: bool) -> None:
    compiled, x = torch.compile(doubled, backend="dort"), torch.ones(3)
    if warm:
        compiled(x)
    with forward_ad.dual_level():
        torch.testing.assert_close(compiled(x), doubled(x))
        with pytest.raises(ExecutionError, match=r"^derivatives in forward mode .*; take torch.func.jvp"):
            compiled(forward_ad.make_dual(x, torch.ones(3)))
    tangents = torch.func.jvp(compiled, (x,), (torch.ones(3),))
    torch.testing.assert_close(tangents, torch.func.jvp(doubled, (x,), (torch.ones(3),)))


def test_memory_that_has_been_freed_is_said_to_be() -> None:
    compiled, x = torch.compile(doubled, backend="dort"), torch.ones(3)
    compiled(x)
    x.untyped_storage().resize_(0)
    with pytest.raises(ExecutionError, match=r"^the memory of a tensor has been freed"):
        compiled(x)


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
def test_a_fake_tensor_is_refused_in_one_line() -> None:
    compiled = torch.compile(doubled, backend="dort")
    compiled(torch.ones(3))
    with FakeTensorMode() as mode, pytest.raises(ExecutionError, match=r"^a fake tensor has no elements"):
        compiled(mode.from_tensor(torch.ones(3)))


# Interrupts.


def interrupted_once(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, after: int = 0) -> None:
    """Has the function raise KeyboardInterrupt at its call number ``after``, and work before and after that."""
    original, calls = getattr(owner, name), iter(range(1000))

    def interrupt(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == after:
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, interrupt)


@pytest.mark.parametrize(
    ("owner", "name", "after"),
    [(building, "lower", 0), (building, "lower", 1), (program, "make_session", 0), (program, "make_session", 1),
     *((files, "write_whole", n) for n in range(6))],
    ids=lambda value: value if isinstance(value, (str, int)) else "",
)  # fmt: skip
def test_after_an_interrupt_compiling_works(
    owner: Any, name: str, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    backend = DebugBackend(dump=tmp_path / "dump")
    compiled = torch.compile(model, backend=backend)

    def train() -> list[Tensor]:
        return list(torch.autograd.grad(compiled(x).square().sum(), list(model.parameters())))

    interrupted_once(monkeypatch, owner, name, after)
    with pytest.raises(KeyboardInterrupt):
        train()
    torch.testing.assert_close(train(), list(torch.autograd.grad(model(x).square().sum(), list(model.parameters()))))
    entries = json.loads((tmp_path / "dump" / "manifest.json").read_text())["graphs"]
    named = {
        entry[key]
        for entry in entries.values()
        for key in ("onnx", "fx", "graph", "constants", "inputs")
        if key in entry
    }
    assert {path.name for path in (tmp_path / "dump").iterdir()} == named | {"manifest.json"}
    assert len(graphs_in(tmp_path / "dump")) == len(backend.graphs)


# What is refused or fails names the place.


def test_an_unsupported_dtype_names_node_and_line() -> None:
    compiled = torch.compile(lambda z: z.acos(), backend="dort", options={"fallback": False})
    with pytest.raises(
        Exception, match=rf"FX node acos \(aten\.acos\.default, .*{THIS}:\d+\) takes a complex64 tensor"
    ):
        compiled(torch.ones(2, dtype=torch.complex64))


FAILING: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], type[Exception]]] = {
    "division": (
        lambda a, b: torch.div(a, b, rounding_mode="trunc"), (torch.tensor([5, 6]), torch.tensor([2, 0])), RuntimeError,
    ),
    "remainder": (lambda a, b: a % b, (torch.tensor([5, 6]), torch.tensor([2, 0])), RuntimeError),
    "power": (lambda a: a**-1, (torch.tensor([1, 2]),), RuntimeError),
    "index": (lambda x, i: x[i], (torch.randn(4), torch.tensor([1, 7])), IndexError),
    "index_put, accumulated": (
        lambda x, i: x.index_put((torch.tensor([0, 1]), i), x[:2, 0], accumulate=True),
        (torch.randn(4, 5), torch.tensor([1, 7])), IndexError,
    ),
    "index_select": (lambda x, i: x.index_select(0, i), (torch.randn(4), torch.tensor([1, 7])), IndexError),
    "embedding": (lambda x, i: F.embedding(i, x), (torch.randn(4, 2), torch.tensor([1, 7])), IndexError),
    "gather": (lambda x, i: x.gather(0, i), (torch.randn(4), torch.tensor([1, 7])), RuntimeError),
    "index_put": (lambda x, i: x.index_put((i,), x[:1]), (torch.randn(6), torch.tensor([7])), IndexError),
    "nll_loss": (lambda x, t: F.nll_loss(x, t), (torch.randn(3, 4), torch.tensor([1, 2, -1])), IndexError),
    "scatter": (lambda x, i: x.scatter(0, i, 1.0), (torch.randn(4), torch.tensor([1, 7])), RuntimeError),
    "masked_scatter": (
        lambda x, s: x.masked_scatter(x < 9, s), (torch.randn(4), torch.ones(2)), RuntimeError,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILING)
def test_a_kernel_that_fails_raises_what_eager_raises(name: str) -> None:
    function, args, kind = FAILING[name]
    with pytest.raises(kind):
        function(*args)
    with pytest.raises(kind) as caught:
        torch.compile(function, backend="dort")(*args)
    if isinstance(caught.value, ExecutionError):
        assert THIS in str(caught.value)
        assert "FX node " in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_model_survives_a_run_that_failed() -> None:
    compiled = torch.compile(lambda x, i: x[i] * 2, backend="dort")
    x = torch.randn(4)
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([1, 7]))
    assert torch.equal(compiled(x, torch.tensor([1, 3])), x[[1, 3]] * 2)


FROM_THE_END: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "embedding": lambda x, i: F.embedding(i, x),
    "embedding_bag": lambda x, i: F.embedding_bag(i, x, torch.tensor([0])),
    "index_select": lambda x, i: x.index_select(0, i),
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "scatter": lambda x, i: x.scatter(0, i[:, None], 1.0),
    "scatter_src": lambda x, i: x.scatter(0, i[:, None], x),
    "scatter_add": lambda x, i: x.scatter_add(0, i[:, None], x),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i[:, None], x, "amax", include_self=False),
    "index_add": lambda x, i: x.index_add(0, i, x[:2]),
    "index_copy": lambda x, i: x.index_copy(0, i, x[:2]),
}


@pytest.mark.parametrize("name", FROM_THE_END)
def test_an_index_that_torch_refuses_to_count_from_the_end_is_refused(name: str) -> None:
    """ONNX's Gather and ScatterElements would count it so."""
    function, x = FROM_THE_END[name], torch.randn(4, 2)
    compiled = torch.compile(function, backend=DebugBackend(fallback=False))
    assert torch.equal(compiled(x, torch.tensor([3, 1])), function(x, torch.tensor([3, 1])))
    for run in (function, compiled):
        with pytest.raises((IndexError, RuntimeError), match=r"(?i)out of|outside|not in the valid|is negative"):
            run(x, torch.tensor([1, -1]))


# What AOTAutograd fails on, not we.


def written_by_two(whole: Tensor, row: Tensor) -> Tensor:
    """Two arguments of one memory, one of them written where autograd is not to see it."""
    whole.sin_()
    with torch.no_grad():
        row.zero_()
    return whole * 2


@pytest.mark.parametrize("backend", ["dort", DebugBackend()])
def test_a_graph_that_torch_cannot_trace_runs_in_eager(backend: Any) -> None:
    gradients = []
    for function in (written_by_two, torch.compile(written_by_two, backend=backend)):
        x = torch.ones(3, 4, requires_grad=True)
        whole = x * 1
        gradients.append(torch.autograd.grad(function(whole, whole[0]).sum(), x))
    assert_close(*gradients, rtol=0, atol=0)


def test_an_error_of_ours_in_tracing_is_not_taken_for_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise AssertionError("ours")

    monkeypatch.setattr(aot, "expand", fails)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="ours"):
        torch.compile(lambda x: x.sin(), backend="dort")(torch.ones(3))


def test_what_torch_cannot_compile_is_one_line_of_a_comparison() -> None:
    """Two results of a branch that requires gradients; plain eager runs it."""

    def branches(x: Tensor) -> Tensor:
        first, second = torch.cond(x.sum() > 0, lambda y: (y.sin(), y.relu()), lambda y: (y.cos(), y.neg()), (x * 2,))
        return first + second

    x = torch.ones(3, 4, requires_grad=True)
    try:
        torch.compile(branches, backend="aot_eager")(x)
    except RuntimeError:
        torch._dynamo.reset()
    else:
        pytest.skip("this torch compiles it")
    with pytest.raises(UsageError, match=r"torch cannot compile the model: RuntimeError: [^\n]+$"):
        compare(Of(branches), (x,), backward=True)
