"""``compare``: one call, one report, and nothing of the caller's touched."""

from __future__ import annotations

import functools
import json
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from of_function import Of
from safetensors import safe_open
from small_models import mlp
from torch import Tensor, fx, nn
from torch._higher_order_ops import while_loop
from torch.utils.checkpoint import checkpoint

from dort_compare import DebugBackend, Report, api, compare
from dort_compare.comparison import compare_with, subject
from dort_compare.errors import MissingLoweringError, RuntimeUnavailableError, UsageError
from dort_compare.lowering import registered, registry
from dort_compare.runtime.providers import once
from dort_compare.trace.call import Call
from dort_compare.trace.model_in_float64 import run_in_float64
from dort_compare.trace.modules import run_module
from dort_compare.trace.outcome import Outcome

aten = torch.ops.aten


class Named(nn.Module):
    """No parameters, keyword arguments, a dict of outputs."""

    def forward(self, x: Tensor, *, scale: Tensor, shift: float = 0.0) -> dict[str, Any]:
        return {"scaled": x * scale + shift, "others": [x.tanh(), x > 0]}


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_right_model_agrees(backward: bool, dynamic: bool | None) -> None:
    report = compare(mlp(), (torch.randn(5, 3),), backward=backward, dynamic=dynamic)
    assert isinstance(report, Report)
    assert report.verdict == "agree", str(report)
    assert report.first_divergence is None
    assert {row.phase for row in report.rows} == ({"forward", "backward"} if backward else {"inference"})
    assert len([row for row in report.outputs if row.kind == "gradient"]) == (4 if backward else 0)
    assert all(row.distance is not None for row in report.outputs)


@pytest.mark.parametrize("autocast", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_half_precision_agrees(autocast: torch.dtype, dtype: torch.dtype) -> None:
    whole = dtype != torch.float32
    report = compare(
        mlp().to(dtype), (torch.randn(5, 3, dtype=dtype),), backward=True, autocast=None if whole else autocast
    )
    assert report.verdict == "agree", str(report)
    assert all(row.torch_vs_float64 is not None for row in report.outputs)


@pytest.mark.parametrize("exporter", ["native", "torch"])
def test_keyword_arguments_dict_outputs_and_no_parameters(exporter: str) -> None:
    x, scale = torch.randn(3, requires_grad=True), torch.tensor(2.0, requires_grad=True)
    report = compare(Named(), (x,), {"scale": scale, "shift": 1.0}, backward=True, exporter=exporter)
    assert report.verdict == "agree", str(report)
    assert [row.name for row in report.outputs] == [
        "['scaled']", "['others'][0]", "['others'][1]", "argument[0]", "argument['scale']",
    ]  # fmt: skip


class Shared(nn.Module):
    """One module in two places, and one tensor in two modules."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.again = self.first
        self.other = nn.Linear(3, 3)
        self.other.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.other(self.again(self.first(x)))


def test_what_a_model_shares_stays_shared_and_as_it_was() -> None:
    model = Shared()
    weight, before = model.first.weight, {name: value.clone() for name, value in model.state_dict().items()}
    report = compare(model, (torch.randn(2, 3),), backward=True, autocast=torch.bfloat16)
    assert report.verdict == "agree", str(report)
    assert all(row.torch_vs_float64 is not None for row in report.outputs)
    assert model.first.weight is weight
    assert model.other.weight is weight
    assert all(
        value.dtype == torch.float32 and torch.equal(value, before[name]) for name, value in model.state_dict().items()
    )


class Counting(nn.Module):
    """Writes buffers of several dtypes in place, and has one parameter under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.a = self.b = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("total", torch.zeros(3, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.total += x.detach().sum(0)
        return self.norm(x * self.a) * self.b


def test_what_a_model_writes_in_place_is_as_before_and_two_names_are_one_parameter() -> None:
    model = Counting()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    call = Call((torch.randn(5, 3),), backward=True)
    report = compare(model, call.args, backward=True)
    assert report.verdict == "agree", str(report)
    exact = run_in_float64(model, call).gradients
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    gradients = run_module(model, dict(model.named_parameters()), call).gradients
    assert gradients.keys() == exact.keys()
    assert all((gradients[name] - exact[name]).abs().max() < 1e-4 for name in exact)


@pytest.mark.parametrize(("autocast", "fault", "runs"), [(None, 0.0, 0), (None, 0.01, 1), (torch.bfloat16, 0.0, 1)])
def test_the_model_runs_in_float64_once_where_it_decides(
    autocast: torch.dtype | None, fault: float, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def counted(model: nn.Module, call: Call) -> Outcome:
        calls.append(call)
        return run_in_float64(model, call)

    monkeypatch.setattr(subject, "run_in_float64", counted)
    silu = registered()[aten.silu.default]
    if fault:
        monkeypatch.setitem(registry._TABLE, aten.silu.default, lambda op, x: op.Mul(silu(op, x), 1 + fault))
    report = compare(mlp(), (torch.randn(5, 3),), backward=True, autocast=autocast)
    assert report.verdict == ("diverge" if fault else "agree"), str(report)
    assert len(calls) == runs
    assert all((row.onnx_vs_float64 is not None) == (not row.ok or autocast is not None) for row in report.outputs)


@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_the_default_device_is_the_models_alone(autocast: torch.dtype | None) -> None:
    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> tuple[Tensor, torch.device]:
            y = self.lin(x).relu() * 0.1
            return nn.functional.dropout(y.mean() + y.cumsum(0), 0.5), torch.zeros(1).device

    model, x = Shifted(), torch.randn(2, 3)
    with torch.device("meta"):
        report = compare(model, (x,), backward=True, autocast=autocast, optimized=True)
        assert model(x)[1].type == "meta"
    assert report.verdict == "agree", str(report)


def test_the_loss_is_the_callers() -> None:
    seen: list[Any] = []

    def loss(output: Tensor) -> Tensor:
        seen.append(output)
        return output.square().mean()

    assert compare(mlp(), (torch.randn(5, 3),), backward=True, loss=loss).verdict == "agree"
    assert [output.dtype for output in seen] == [torch.float32] * 3


def test_nothing_of_the_callers_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    model[0].weight.grad = torch.full((3, 3), 7.0)
    x = torch.randn(2, 3, requires_grad=True)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    random, given = torch.get_rng_state(), x.detach().clone()
    compare(model, (x,), backward=True)
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.equal(model[0].weight.grad, torch.full((3, 3), 7.0))
    assert model[0].bias.grad is None
    assert x.grad is None
    assert torch.equal(x, given)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert torch.is_grad_enabled()
    assert list(tmp_path.iterdir()) == []


class Counter(nn.Module):
    """A model that another call makes another one of."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.calls


def test_a_buffer_that_counts_calls_starts_from_the_same_number() -> None:
    model = Counter()
    report = compare(model, (torch.ones(3),))
    assert report.verdict == "agree", str(report)
    assert model.calls.item() == 0


class Lying(nn.Module):
    """A model that computes something else when it is compiled."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (2 if torch.compiler.is_compiling() else 3)


def test_a_departure_before_onnx_is_told_from_one_within() -> None:
    report = compare(Lying(), (torch.ones(3),))
    assert report.verdict == "diverge"
    assert {row.status for row in report.rows} == {"ok"}
    assert report.first_divergence is not None
    assert report.first_divergence.phase == "eager"


def test_a_wrong_kernel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from dort_compare.lowering import registry
    from dort_compare.lowering.ops import elementary  # noqa: F401  (fills the table)

    monkeypatch.setitem(registry._TABLE, torch.ops.aten.tanh.default, lambda op, x: op.Sin(x))
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    report = compare(model, (torch.randn(2, 3),), backward=True)
    assert report.verdict == "diverge"
    first = report.first_divergence
    assert first is not None
    assert (first.phase, first.target, first.onnx_nodes) == ("forward", "aten.tanh.default", ("tanh.Sin",))
    assert first.module == "1"
    assert "ONNX is further from float64" in first.reason
    assert {row.status for row in report.rows if row.phase == "backward"} == {"ok"}


def test_the_report_becomes_json(tmp_path: Path) -> None:
    report = compare(mlp(), (torch.randn(5, 3),), backward=True)
    report.to_json(tmp_path / "report.json")
    found = json.loads((tmp_path / "report.json").read_text())
    assert found["verdict"] == "agree"
    assert found["summary"].startswith("agree: ")
    assert (found["settings"]["backward"], found["settings"]["exporter"]) == (True, "native")
    assert found["environment"]["torch"] == torch.__version__
    silu = next(row for row in found["rows"] if row["target"] == "aten.silu.default")
    assert silu["operands"] == ["addmm"]


def test_a_row_holds_the_code_of_its_line() -> None:
    args = (torch.randn(2, 2),)
    report = compare(Named(), args, {"scale": torch.randn(2, 2)})
    tanh = next(row for row in report.rows if row.target == "aten.tanh.default")
    assert tanh.code == 'return {"scaled": x * scale + shift, "others": [x.tanh(), x > 0]}'


def test_a_dump_holds_forward_and_backward_and_nothing_lies_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    compare(mlp(), (torch.randn(5, 3),), backward=True, dump=tmp_path / "dump")
    assert list((tmp_path / "cwd").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cwd", "dump"]
    graphs = json.loads((tmp_path / "dump" / "manifest.json").read_text())["graphs"]
    assert [entry["phase"] for entry in graphs.values()] == ["forward", "backward"]
    with safe_open(tmp_path / "dump" / graphs["model_1"]["inputs"], "pt") as inputs:
        assert any(name.startswith("tangents") for name in inputs.keys())  # noqa: SIM118


def test_backward_is_compared_on_its_own_inputs() -> None:
    """Two saved activations of one shape: a pairing by shape, or forward's inputs, would mix them up."""

    class Gate(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x.sigmoid() * y.tanh()

    args = tuple(torch.randn(4, 4, requires_grad=True) for _ in range(2))
    comparison = compare_with(Gate(), Call(args, backward=True), DebugBackend())
    assert comparison.report.verdict == "agree", str(comparison.report)
    backward = comparison.graphs[1]
    assert {"tangents_1"} < set(backward.named_inputs())
    assert [row.phase for row in comparison.report.rows].count("backward") > 4


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            {"args": torch.ones(2, 3)},
            UsageError,
            "args is a Tensor; give the model's arguments as a tuple, such as (x,)",
        ),
        ({"provider": "cpuu"}, UsageError, "did you mean 'cpu'?"),
        ({"colour": 1}, UsageError, "unknown option 'colour'"),
        ({"optimised": True}, UsageError, "unknown option 'optimised', did you mean 'optimized'?"),
        ({"repeat": 2}, UsageError, "unknown option 'repeat', did you mean 'repeats'?"),
        ({"max_run": 1}, UsageError, "unknown option 'max_run', did you mean 'max_runs'?"),
        ({"max_runs": 0}, UsageError, "max_runs is 0"),
        ({"max_runs": "3"}, UsageError, "max_runs is '3'; it counts runs"),
        ({"autocast": "float16"}, UsageError, "autocast is 'float16'; give torch.float16, torch.bfloat16 or None"),
        ({"provider": None}, UsageError, "provider is None; give 'cpu' or 'cuda'"),
        ({"model": lambda x: x}, UsageError, "model is a function; give a torch.nn.Module"),
        ({"loss": torch.sum}, UsageError, "a loss is only used for gradients"),
        ({"storage": {}}, UsageError, "give storage to DebugBackend"),
        ({"provider": "cuda", "providers": ["cpu"]}, UsageError, "give provider, not providers=['cpu']"),
        ({"target_opset": 999}, UsageError, "opset 999 is not supported"),
        ({"kwargs": torch.ones(2)}, UsageError, "kwargs is a Tensor; give the keyword arguments as a dict"),
        ({"kwargs": {1: 2}}, UsageError, "give the keyword arguments as a dict from their names"),
        ({"backward": "no"}, UsageError, "backward is 'no' and dynamic is None; give True or False"),
        ({"dynamic": "maybe"}, UsageError, "dynamic is 'maybe'; give True or False, or for dynamic None"),
        ({"backward": True, "loss": 3}, UsageError, "loss is a int; give a function of what the model returns"),
        ({"compile_backends": [lambda g, x: g, lambda g, x: g]}, UsageError, "two of compile_backends are called"),
        ({"memory": True}, UsageError, "memory is True; give a whole number, at least 1"),
        ({"memory": "64"}, UsageError, "memory is '64'; give a whole number, at least 1"),
        ({"repeats": 1.5}, UsageError, "repeats is 1.5; give a whole number"),
        ({"optimized": "no"}, UsageError, "optimized is 'no'; give True or False"),
        ({"suggest_fp32": "yes"}, UsageError, "suggest_fp32 is 'yes'; give True, or a relative error"),
        ({"compile_backends": None}, UsageError, "compile_backends is None; give a list"),
        ({"compile_backends": [3]}, UsageError, "compile backend 3 is neither a name nor a function"),
        ({"dump": 3}, UsageError, "dump is 3; give a folder"),
        ({"dump": "d" * 300}, Exception, "File name too long; choose another one"),
        ({"dump": "/dev/null/dump"}, Exception, "cannot write the folder /dev/null/dump"),
    ],
)
def test_a_wrong_call_is_one_line(call: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        compare(**{"model": mlp(), "args": (torch.ones(1, 3),), **call})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_without_a_gpu_is_one_clear_line() -> None:
    with pytest.raises(RuntimeUnavailableError, match="no CUDA device"):
        compare(mlp(), (torch.ones(1, 3),), provider="cuda")


def test_backward_with_nothing_to_differentiate_is_refused() -> None:
    with pytest.raises(UsageError, match="no output depends on a parameter or argument that requires grad"):
        compare(Named(), (torch.ones(2),), {"scale": torch.tensor(2.0)}, backward=True)


class Reentrant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.lin, x, use_reentrant=True)


def test_a_checkpoint_that_is_differentiated_by_backward_alone_is_one_line() -> None:
    with pytest.raises(UsageError, match=r"^checkpoint\(\.\.\., use_reentrant=True\) .* give use_reentrant=False$"):
        compare(Reentrant(), (torch.ones(1, 3, requires_grad=True),), backward=True)


@pytest.mark.parametrize(
    ("precision", "told"), [(None, "torch.compile cannot differentiate"), (torch.bfloat16, "eager has gradients, the")]
)
def test_a_gradient_that_the_model_takes_itself_is_one_line(precision: torch.dtype | None, told: str) -> None:
    class Slope(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return torch.autograd.grad(self.lin(x).sin().sum(), x, create_graph=True)[0]

    with pytest.raises(UsageError, match=rf"^{told} .* take (it|that) by torch\.func\.grad$"):
        compare(Slope(), (torch.ones(3, requires_grad=True),), backward=True, autocast=precision)


def test_a_gradient_that_the_model_takes_itself_wants_gradients_enabled() -> None:
    class Force(nn.Module):
        def __init__(self, enabled: bool) -> None:
            super().__init__()
            self.lin = nn.Linear(3, 3)
            self.enabled = enabled

        def forward(self, x: Tensor) -> Tensor:
            with torch.enable_grad() if self.enabled else nullcontext():
                return torch.autograd.grad(self.lin(x).sin().sum(), x)[0]

    x = torch.ones(3, requires_grad=True)
    with pytest.raises(UsageError, match=r"under torch\.no_grad\(\), so let it .* within torch\.enable_grad\(\)$"):
        compare(Force(enabled=False), (x,))
    assert compare(Force(enabled=True), (x,)).verdict == "agree"


class Transformed(nn.Module):
    """Calls a module within one of torch's function transforms."""

    def __init__(self, transform: str) -> None:
        super().__init__()
        self.lin = nn.Linear(3, 3)
        self.transform = transform

    def row(self, x: Tensor) -> Tensor:
        return self.lin(x).sin()

    def forward(self, x: Tensor) -> Any:
        if self.transform == "jvp":
            return torch.func.jvp(self.row, (x,), (torch.ones_like(x),))
        if self.transform == "grad":
            return torch.func.grad(lambda x: self.row(x).sum())(x)
        if self.transform == "weights":
            lossy = lambda weights: torch.func.functional_call(self.lin, weights, (x,)).sin().sum()  # noqa: E731
            return torch.func.grad(lossy)(dict(self.lin.named_parameters()))
        return torch.func.vmap(self.row)(x)


@pytest.mark.parametrize("transform", ["jvp", "grad", "weights", "vmap"])
def test_modules_called_within_function_transforms_are_compared(transform: str) -> None:
    report = compare(Transformed(transform), (torch.randn(2, 3),), backward=True)
    assert report.verdict == "agree", str(report)
    assert {row.name for row in report.outputs if row.kind == "gradient"} >= {"lin.weight"}


class Reseeded(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        torch.seed()
        return nn.functional.dropout(x.sin())


@dataclass
class Count:
    calls: int = 0


class Numbered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count = Count()

    def forward(self, x: Tensor) -> Tensor:
        self.count.calls += 1
        return x.sin() * self.count.calls


class Recurrent(nn.Module):
    """Keeps its hidden state for the next call, and a table that the first call makes."""

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.cache = nn.Linear(4, 4), dict[str, Tensor]()
        self.hidden = torch.zeros(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        if "table" not in self.cache:
            self.cache["table"] = self.lin.weight[[1, 0, 3, 2]]
        self.hidden = torch.tanh(self.lin(x) @ self.cache["table"] + self.hidden)
        return self.hidden


def test_a_model_that_keeps_something_of_each_call_is_compared_as_in_the_first() -> None:
    model = Recurrent()
    report = compare(model, (torch.randn(3, 4),), backward=True)
    assert report.verdict == "agree", str(report)
    assert {row.name for row in report.outputs if row.kind == "gradient"} == {"lin.weight", "lin.bias"}
    assert not model.cache


def test_the_hidden_states_that_a_model_records_by_hooks_are_as_many_in_each_run() -> None:
    """Those of transformers register the hooks in their first call."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=32, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        output_hidden_states=True, output_attentions=True, attn_implementation="eager",
    )  # fmt: skip
    model = BertModel(config).eval()
    report = compare(model, (torch.arange(8).view(1, 8),))
    assert report.verdict == "agree", str(report)
    assert {f"['hidden_states'][{i}]" for i in range(4)} & {row.name for row in report.outputs} == {
        f"['hidden_states'][{i}]" for i in range(3)
    }
    assert len(model(torch.arange(8).view(1, 8)).hidden_states) == 3


@pytest.mark.parametrize("model", [Reseeded(), Numbered()], ids=["reseeded", "counting"])
def test_a_model_that_is_another_each_time_is_one_line(model: nn.Module) -> None:
    with pytest.raises(UsageError, match=r"^the model returns something else each time .*; let it keep no count .*$"):
        compare(model, (torch.ones(64),))


@pytest.mark.parametrize("draw", [np.random.permutation, np.random.rand])
def test_numbers_that_numpy_draws_are_the_same_in_eager_and_compiled(draw: Any) -> None:
    class Drawn(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sin()[torch.from_numpy(draw(64)).argsort()]

    assert compare(Drawn(), (torch.arange(64.0),)).verdict == "agree"


def test_a_model_may_be_compared_again_and_again() -> None:
    model = mlp()
    for _ in range(torch._dynamo.config.recompile_limit + 2):
        assert compare(model, (torch.randn(5, 3),)).rows


def test_a_backend_that_is_an_object_is_called_by_its_class() -> None:
    report = compare(mlp(), (torch.ones(1, 3),), compile_backends=[functools.partial(lambda graph, _: graph), Eager()])
    assert {row.backend for row in report.outputs} == {"debug", "functools.partial", f"{__name__}.Eager"}


class Eager:
    """A backend of torch.compile that computes what it is given."""

    def __call__(self, graph_module: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        return graph_module


def test_a_program_of_torch_export_is_compared() -> None:
    exported = torch.export.export(mlp(), (torch.ones(5, 3),)).module()
    report = compare(exported, (torch.randn(5, 3),), backward=True)
    assert report.verdict == "agree"
    assert {row.name for row in report.outputs if row.kind == "gradient"} >= {"0.weight"}


def test_why_nothing_is_compiled_is_told() -> None:
    x = torch.ones(1, 3)
    for script in (torch.jit.trace(mlp(), x), torch.jit.script(mlp())):
        with pytest.raises(UsageError, match=r"it is TorchScript, not Python: give the module that it was made of$"):
            compare(script, (x,))
    off = torch._dynamo.config.patch(disable=True)
    with off, pytest.raises(UsageError, match=r"torch\.compile is off: unset TORCH_COMPILE_DISABLE"):
        compare(mlp(), (x,))


def test_a_conjugate_output_is_differentiated() -> None:
    """torch leaves it conjugated only when it is read."""
    z = torch.randn(3, dtype=torch.complex64, requires_grad=True)
    report = compare(Of(lambda z: ((z * 2).conj(), z.imag)), (z,), backward=True)
    assert report.verdict == "agree"
    assert [row.kind for row in report.outputs] == ["output", "output", "gradient"]


def test_a_model_that_is_never_compiled_is_refused() -> None:
    class Eager(nn.Module):
        @torch.compiler.disable
        def forward(self, x: Tensor) -> Tensor:
            return x + 1

    with pytest.raises(UsageError, match=r"^torch\.compile made no graph.*; torch says: .*compiler\.disable.*Hint: ."):
        compare(Eager(), (torch.ones(2),))


class Loop(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        start = (torch.zeros((), dtype=torch.int64), x.clone())
        _, found = while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y.sin() + x), start)
        return found


def test_the_gradient_of_a_loop_says_what_torch_wants_for_it() -> None:
    x = torch.rand(4, requires_grad=True)
    with pytest.raises(UsageError, match=r"made no graph.*set torch\._dynamo\.config\.capture_scalar_outputs = True$"):
        compare(Loop(), (x,), backward=True)
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        assert compare(Loop(), (x,), backward=True).verdict == "agree"


def test_a_missing_lowering_comes_without_torchs_wrapping() -> None:
    class Svd(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.linalg.svdvals(x)

    with pytest.raises(MissingLoweringError, match=r"no lowering for aten._linalg_svd.*test_api.py:\d+\)"):
        compare(Svd(), (torch.eye(3),), fallback=False)


def test_a_module_that_is_compiled_already_is_compared_as_the_one_inside() -> None:
    seen: list[fx.GraphModule] = []

    def spy(graph_module: fx.GraphModule, example_inputs: Any) -> Any:
        seen.append(graph_module)
        return graph_module.forward

    compiled = torch.compile(mlp(), backend=spy)
    assert compare(compiled, (torch.randn(2, 3),)).verdict == "agree"
    assert not seen


class Wrapper(nn.Module):
    """Calls its submodule what torch.compile calls the module that it wraps."""

    def __init__(self) -> None:
        super().__init__()
        self._orig_mod = mlp()

    def forward(self, x: Tensor) -> Tensor:
        return 100 * self._orig_mod(x)


def test_a_module_of_the_callers_is_compared_whatever_its_parts_are_called() -> None:
    x, model = torch.randn(2, 3), Wrapper()
    report = compare(model, (x,))
    (output,) = report.outputs
    assert output.distance is not None
    assert output.distance.scale == pytest.approx(float(model(x).abs().max()))


class Complements(nn.Module):
    """Two outputs whose sum is the same whatever the weights are."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        p = self.linear(x).tanh()
        return p, 1 - p


def test_outputs_that_complement_each_other_have_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    target = torch.ops.aten.tanh_backward.default
    right = registered()[target]
    assert compare(Complements(), (torch.randn(2, 3),), backward=True).verdict == "agree"
    monkeypatch.setitem(registry._TABLE, target, lambda op, *args: op.Mul(right(op, *args), 1.5))
    report = compare(Complements(), (torch.randn(2, 3),), backward=True)
    assert [cause.target for cause in report.causes] == ["aten.tanh_backward.default"]


def test_options_of_the_callers_stand_beside_those_of_a_session_that_runs_once() -> None:
    backends: list[DebugBackend] = []

    class Seen(DebugBackend):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            backends.append(self)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(api, "DebugBackend", Seen)
        compare(mlp(), (torch.randn(2, 3),), session_options={"log_severity_level": 4})
    given = dict(backends[0].options.session.session_options)
    assert given == {**once(), "log_severity_level": 4}


def test_a_parameter_that_the_forward_writes_gets_its_content_back() -> None:
    class Writing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                self.weight.add_(1)
            return x * self.weight

    module = Writing()
    assert compare(module, (torch.randn(2, 3),)).verdict == "agree"
    assert torch.equal(module.weight, torch.ones(3))


def test_a_dump_takes_the_place_of_an_older_one(tmp_path: Path) -> None:
    for width in (3, 4):
        compare(nn.Linear(width, 2), (torch.randn(2, width),), backward=True, dump=tmp_path / "dump")
    names = {path.name for path in (tmp_path / "dump").iterdir()}
    assert {"model_0.onnx", "model_1.onnx"} <= names
    assert "model_2.onnx" not in names


class NormOfTransposed(nn.Module):
    """torch traces the norm's result laid out like its operand; the kernel lays it out in order."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(6)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.transpose(1, 2)).transpose(1, 2).reshape(-1, 3)


def test_a_kernel_may_lay_out_its_result_otherwise_than_torch_traced() -> None:
    report = compare(NormOfTransposed().eval(), (torch.randn(2, 5, 6),), backward=True)
    assert report.verdict == "agree"


@pytest.mark.slow
def test_inductor_is_held_to_the_same_reference_and_drops_what_eager_drops() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(), nn.GELU(), nn.Linear(16, 2))
    report = compare(model, (torch.randn(4, 8),), backward=True, compile_backends="inductor")
    assert report.verdict == "agree", str(report)
    assert [row.backend for row in report.outputs] == ["debug"] * 5 + ["inductor"] * 5


def test_a_loss_may_leave_outputs_out() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(3)

        def forward(self, x: Tensor) -> dict[str, Tensor | tuple[Tensor, ...]]:
            x = self.norm(x)
            return {"a": x, "rest": (x.relu(), x + 1)}

    report = compare(Two(), (torch.randn(4, 3),), backward=True, loss=lambda found: found["a"].square().mean())
    assert report.verdict == "agree", str(report)
    assert {row.name for row in report.outputs if row.kind == "gradient"} == {"norm.weight", "norm.bias"}


def test_a_backend_that_has_run_before_is_compared_too() -> None:
    backend, model, x = DebugBackend(), mlp(), torch.randn(5, 3)
    torch.compile(model, backend=backend)(x).sum().backward()
    report = compare_with(model, Call((x,), backward=True), backend).report
    assert report.verdict == "agree"
    assert {row.graph for row in report.rows} == {graph.index for graph in backend.graphs[2:]}
    assert report.observed


class Unset(nn.Module):
    """Writes the rows of a tensor that torch makes unset."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([1.0, 0.2, 0.1]))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        y[0], y[1] = x[0].sin(), x[1] * self.scale
        return y.exp()


def test_what_memory_held_before_is_no_departure() -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)  # torch fills with NaN what it leaves unset
    try:
        report = compare(Unset(), (torch.randn(2, 3),), backward=True)
    finally:
        torch.use_deterministic_algorithms(False)
    assert report.verdict == "agree", str(report)
    assert any("aten.empty" in row.target for row in report.rows)
