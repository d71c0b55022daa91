"""What departs between plain eager and the traced graphs is named by module, and nothing else is."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._decomp import decomposition_table
from torch.nn import functional as F
from torch.torch_version import TorchVersion

from dort_compare import Report, compare
from dort_compare.backends import aot
from dort_compare.measure.before_onnx.tracing import Tracing
from dort_compare.models import LlamaConfig, build
from dort_compare.trace import Outcome

aten = torch.ops.aten


class Block(nn.Module):
    """A residual block whose activation is a module of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 12)
        self.act = nn.ELU()
        self.down = nn.Linear(12, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.act(self.up(self.norm(x))))


def blocks() -> nn.Module:
    return nn.Sequential(Block(), Block())


@pytest.fixture
def decompose(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``decompose(op, function)``: lets AOTAutograd rewrite ``op`` into what ``function`` computes."""

    def plant(op: Any, function: Callable[..., Any]) -> None:
        table = aot.decompositions
        monkeypatch.setattr(aot, "decompositions", lambda: {**table(), op: function})

    return plant


def assert_clean(report: Report) -> None:
    assert report.verdict == "agree", str(report)
    assert {row.status for row in report.modules} <= {"ok", "unaligned"}


def assert_named(report: Report, module: str) -> None:
    """Of all that was found there is one cause, before ONNX, in this module."""
    assert report.verdict == "diverge"
    assert {row.status for row in report.rows} == {"ok"}
    (cause,) = report.causes
    assert (cause.phase, cause.module) == ("eager", module), cause
    assert cause.reason.startswith("departs before ONNX: ")
    assert "is noise" in cause.reason


def wrong_elu(x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    return torch.where(x > 0, x, 1.02 * (x.exp() - 1))


def wrong_elu_backward(
    grad: Tensor, alpha: float, scale: float, input_scale: float, is_result: bool, x: Tensor
) -> Tensor:
    return torch.where(x > 0, grad, 1.1 * grad * (x + 1 if is_result else x.exp()))


@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_a_wrong_decomposition_is_named_by_its_module(decompose: Any, autocast: torch.dtype | None) -> None:
    decompose(aten.elu.default, wrong_elu if autocast is None else lambda x, *_: wrong_elu(x) * 1.2)
    report = compare(blocks(), (torch.randn(4, 8),), backward=True, autocast=autocast)
    assert_named(report, "0.act")
    departing = [row for row in report.modules if row.status == "diverges"]
    assert [(row.module, row.kind) for row in departing][:3] == [
        ("0.act", "output"),
        ("0.down", "output"),
        ("0", "output"),
    ]


def test_of_many_nodes_that_may_have_departed_the_first_and_last_are_named(decompose: Any) -> None:
    def long(x: Tensor, *_: Any) -> Tensor:
        for _step in range(20):
            x = x * 1.01
        return x

    decompose(aten.elu.default, long)
    report = compare(blocks(), (torch.randn(4, 8),))
    assert_named(report, "0.act")
    nodes = next(row for row in report.modules if row.status == "diverges").fx_nodes
    assert len(nodes) == 20
    assert report.causes[0].fx_node == " ".join(nodes)
    assert " ".join([*nodes[:3], "...", *nodes[-3:]]) in str(report)


def test_dropout_that_torch_loses_between_recurrent_layers_is_named() -> None:
    """AOTAutograd traces a GRU of two layers without the dropout between them."""
    report = compare(nn.GRU(8, 6, 2, dropout=0.3).train(), (torch.randn(5, 2, 8),))
    assert report.causes[0].phase == "eager"
    assert "the graph is further from float64" in report.causes[0].reason


def test_a_wrong_decomposition_of_a_gradient_is_named_by_its_module(decompose: Any) -> None:
    decompose(aten.elu_backward.default, wrong_elu_backward)
    report = compare(blocks(), (torch.randn(4, 8),), backward=True)
    assert_named(report, "1.act")
    assert {row.kind for row in report.modules if row.status == "diverges"} == {"gradient"}
    first = next(row for row in report.modules if row.status == "diverges")
    assert (first.module, first.cause) == ("1.up", "1.act")


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


class Padded(nn.Module):
    """Attention of which the last sequence is hidden whole: what it attends to there is a matter of roundings."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(8, 8)
        self.out = nn.Linear(8, 8)
        self.act = nn.ELU()

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        scores = self.query(x) @ x.transpose(-1, -2) + mask
        return self.act(self.out(scores.softmax(-1) @ x))


def half_hidden() -> tuple[Tensor, Tensor]:
    mask = torch.zeros(4, 1, 16)
    mask[2:] = -1e9
    return 3 * torch.randn(4, 16, 8), mask


@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
@pytest.mark.parametrize("wrong", [1.0, 4.0])
def test_a_departure_beside_what_is_a_matter_of_roundings_is_named(
    decompose: Any, autocast: torch.dtype | None, wrong: float
) -> None:
    decompose(aten.elu.default, lambda x, *_: torch.where(x > 0, x, wrong * (x.exp() - 1)))
    report = compare(Padded(), half_hidden(), autocast=autocast)
    if wrong == 1.0:
        assert_clean(report)
    else:
        assert_named(report, "act")


class Huge(nn.Module):
    """Attention to one token that is far larger than all others: the gradients of keys cancel."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.project(x).view(4, 16, 3, 2, 8).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        return self.out(mixed.transpose(1, 2).reshape(4, 16, 16))


def encoder_layers() -> nn.Module:
    layer = partial(nn.TransformerEncoderLayer, 16, 2, 32, dropout=0.0, batch_first=True)
    return nn.Sequential(layer(), layer(norm_first=True))


@pytest.mark.parametrize(
    ("make", "seed"),
    [
        (Huge, 3),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in ((Huge, 4), (Huge, 13), (encoder_layers, 34), (encoder_layers, 39))
        ),
    ],
)
def test_gradients_that_cancel_beside_one_huge_token_are_noise(make: Callable[[], nn.Module], seed: int) -> None:
    torch.manual_seed(seed)
    model, x = make(), torch.randn(4, 16, 16)
    x[:, 0] *= 2000
    assert compare(model, (x,), backward=True).verdict == "agree"


@pytest.mark.parametrize("model", [nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh())])
def test_what_a_model_of_torchs_own_modules_returns_is_compared(model: nn.Module) -> None:
    """Dynamo traces the call of the model itself."""
    report = compare(model, (torch.randn(2, 4),), backward=True)
    assert {(row.kind, row.status) for row in report.modules if row.module == ""} == {
        ("output", "ok"),
        ("gradient", "ok"),
    }


class Cancelling(nn.Module):
    """The gradient by the last layer is a sum of what a batch norm returns, which is zero."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.norm(self.first(x))).mean()


@pytest.mark.parametrize(("scale", "seed"), [(1e-6, 1), (1e-4, 2), (1e-2, 2)])
def test_what_a_batch_norm_of_a_nearly_blank_image_leaves_of_a_gradient_is_noise(scale: float, seed: int) -> None:
    torch.manual_seed(seed)
    assert_clean(compare(Cancelling(), (torch.randn(2, 3, 8, 8) * scale,), backward=True))


class Signs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.nn.functional.soft_margin_loss(self.linear(x), y.sign())


def test_of_nan_before_onnx_float64_says_whose_it_is() -> None:
    """Eager's gradient of this loss is NaN (2.13) where an exponential overflows, its decomposition's is not."""
    torch.manual_seed(0)
    report = compare(Signs(), (torch.randn(3, 4) * 300, torch.randn(3, 4)), backward=True)
    assert (
        "5 NaN in eager where the traced graph has numbers; float64 has what the traced graph has"
        in report.causes[0].reason
    )


class Saturated(nn.Module):
    """A loss that takes the logarithm of probabilities down to 1e-9."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        probabilities = torch.sigmoid(12 * self.scores(x))
        return nn.functional.binary_cross_entropy(probabilities, (x > 0).float())


def test_the_gradient_of_a_saturated_sigmoid_agrees() -> None:
    torch.manual_seed(4)
    assert_clean(compare(Saturated(), (torch.randn(128, 8),), backward=True))


class Masked(nn.Module):
    """Scores of which a quarter is masked, ``wrong`` times as large where it is compiled."""

    def __init__(self, mask: float, wrong: float) -> None:
        super().__init__()
        self.scores = nn.Linear(8, 16)
        self.mask, self.wrong = mask, wrong

    def forward(self, x: Tensor) -> Tensor:
        scores = self.scores(x) * (self.wrong if torch.compiler.is_compiling() else 1.0)
        return scores.masked_fill(torch.arange(16) >= 12, self.mask)


@pytest.mark.parametrize("wrong", [1.0, 1.3])
@pytest.mark.parametrize("mask", [-1e9, -1e4, torch.finfo(torch.float32).min, -torch.inf])
def test_an_output_that_departs_beside_masks_is_told(mask: float, wrong: float) -> None:
    report = compare(Masked(mask, wrong), (torch.randn(4, 8),))
    assert report.verdict == ("agree" if wrong == 1.0 else "diverge")
    assert [row.ok for row in report.outputs] == [wrong == 1.0]


@pytest.mark.parametrize("mask", [-1e9, -1e4, torch.finfo(torch.float32).min, -torch.inf])
def test_a_module_that_departs_beside_masks_is_named(mask: float) -> None:
    right, wrong = (nn.Sequential(Masked(mask, factor), nn.Softmax(-1), nn.Linear(16, 4)) for factor in (1.0, 1.3))
    assert_clean(compare(right, (torch.randn(4, 8),), backward=True))
    assert_named(compare(wrong, (torch.randn(4, 8),)), "0")


class Twofold(nn.Module):
    """Three times ``x`` where it is compiled, twice in eager, ``x`` itself in float64."""

    def forward(self, x: Tensor) -> Tensor:
        return x if x.dtype == torch.float64 else x * (3 if torch.compiler.is_compiling() else 2)


def test_where_float64_computes_something_else_it_is_no_measure() -> None:
    report = compare(Twofold(), (torch.randn(4, 8),))
    assert report.verdict == "diverge"
    assert [row.noise_floor < 1e-3 for row in report.outputs] == [True]


def test_what_a_module_writes_in_inference_mode_is_not_held_against_what_was_there() -> None:
    model = nn.Sequential(nn.Conv1d(4, 4, 3), nn.BatchNorm1d(4), nn.ReLU(inplace=True)).eval()
    with torch.inference_mode():
        report = compare(model, (torch.randn(2, 4, 16),))
    assert_clean(report)
    assert max(row.distance.max_abs for row in report.modules if row.distance) < 1e-5


class Averaging(nn.Module):
    """Keeps a running mean, in place or as a new tensor, ``wrong`` times as large where it is compiled."""

    def __init__(self, wrong: float, is_in_place: bool) -> None:
        super().__init__()
        self.wrong, self.is_in_place = wrong, is_in_place
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        found = x.detach().mean(0).to(self.mean) * (self.wrong if torch.compiler.is_compiling() else 1.0)
        self.mean = self.mean.lerp_(found, 0.5) if self.is_in_place else self.mean.lerp(found, 0.5)
        return x * 2


@pytest.mark.parametrize("is_in_place", [True, False])
@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_a_buffer_that_departs_alone_is_named_by_its_module(is_in_place: bool, autocast: torch.dtype | None) -> None:
    """No output or gradient depends on it."""
    right, wrong = (nn.Sequential(nn.Linear(8, 8), Averaging(factor, is_in_place)) for factor in (1.0, 1.3))
    report = compare(right, (torch.randn(4, 8),), backward=True, autocast=autocast)
    assert_clean(report)
    assert "and 4 outputs, gradients and updates, none" in str(report)
    assert [row.name for row in report.outputs if row.kind == "update"] == ["1.mean"]
    report = compare(wrong, (torch.randn(4, 8),), backward=True, autocast=autocast)
    assert_named(report, "1")
    assert report.causes[0].fx_node == "update 1.mean"


def test_a_module_by_the_name_of_argument_is_a_module() -> None:
    model = nn.ModuleDict({"argument": Averaging(1.3, True)})
    model.forward = lambda x: model["argument"](x)  # type: ignore[method-assign]
    report = compare(model, (torch.randn(4, 8),), backward=False)
    assert report.causes[0].fx_node == "update argument.mean"
    assert report.causes[0].module == "argument"


def test_an_argument_that_is_written_is_compared() -> None:
    class Writing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mul_(3 if torch.compiler.is_compiling() else 2).sign()

    report = compare(Writing(), (torch.ones(3),))
    assert report.causes[0].fx_node == "update argument[0]"
    assert report.verdict == "diverge"


def test_a_parameters_gradient_that_departs_alone_is_named_by_its_module(decompose: Any) -> None:
    def wrong(
        grad: Tensor, x: Tensor, shape: Any, mean: Tensor, rstd: Tensor, weight: Any, bias: Any, mask: Any
    ) -> Any:
        dx, dw, db = decomposition_table[aten.native_layer_norm_backward.default](
            grad, x, shape, mean, rstd, weight, bias, mask
        )
        return dx, dw * 1.1, db

    decompose(aten.native_layer_norm_backward.default, wrong)
    report = compare(blocks(), (torch.randn(4, 8),), backward=True)
    assert_named(report, "1.norm")
    assert report.causes[0].fx_node == "gradient 1.norm.weight"


class Margin(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 4)
        self.loss = nn.MultiLabelMarginLoss()

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return self.loss(self.head(x).tanh(), target)


@pytest.mark.skipif(TorchVersion(torch.__version__) >= (2, 14), reason="torch has mended it")
def test_a_wrong_decomposition_of_torchs_is_named(decompose: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    op = aten.multilabel_margin_loss_forward.default
    args = torch.randn(3, 4), torch.tensor([[3, -1, 1, 2], [1, 2, -1, 0], [-1, 0, 1, 2]])
    assert_clean(compare(Margin(), args, backward=True))
    monkeypatch.setattr(aot, "right_margin_loss", nullcontext)
    decompose(op, decomposition_table[op])
    assert_named(compare(Margin(), args, backward=True), "loss")


class Kinds(nn.Module):
    """Modules that are called twice, return dicts and tuples, compute nothing, or share their weights."""

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair()
        self.blocks = nn.ModuleList([nn.Linear(6, 6), nn.Sequential(nn.SiLU(), nn.Identity())])
        self.tied = self.blocks[0]
        self.drop = nn.Dropout(0.4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.pair(x)["a"]
        y = self.pair(y)["a"] + x
        for block in self.blocks:
            y = self.drop(block(y))
        return self.tied(y)


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> dict[str, Any]:
        return {"a": self.lin(x).tanh(), "unread": (x * 2, None)}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))])
def test_every_kind_of_module_agrees_or_is_listed_with_its_reason(seed: int) -> None:
    torch.manual_seed(seed)
    report = compare(Kinds(), (torch.randn(3, 6),), backward=True)
    assert_clean(report)
    rows = {(row.module, row.call, row.leaf, row.kind): row for row in report.modules}
    for module, call, leaf in [
        ("pair", 0, "['a']"),
        ("pair", 1, "['a']"),
        ("pair.lin", 1, ""),
        ("blocks.0", 1, ""),
        ("", 0, ""),
    ]:
        for kind in ("output", "gradient"):
            assert rows[module, call, leaf, kind].status == "ok", (module, call, kind)
    assert rows["drop", 1, "", "output"].status == "ok"
    assert rows["pair", 0, "['unread'][0]", "output"].status == "unaligned"
    assert rows["blocks.1.1", 0, "", "output"].reason == "no operation of the compiled graphs stems from it"
    assert ("tied", 0, "", "output") not in rows


class Broken(nn.Module):
    """Its blocks' code is compiled once, in two graphs, and runs for both."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))
        self.blocks = nn.ModuleList([Half(), Half()])
        self.norm = nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.norm(x) + x


class Half(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.act = nn.ELU()

    def forward(self, x: Tensor) -> Tensor:
        y = self.lin(x)
        torch._dynamo.graph_break()
        return self.act(y)


def test_modules_are_known_across_graph_breaks() -> None:
    report = compare(Broken(), (torch.randn(3, 4),), backward=True)
    assert_clean(report)
    unaligned = {(row.module, row.kind): row.reason for row in report.modules if row.status == "unaligned"}
    assert unaligned == {("first.0", "output"): "eager writes it in place afterwards"}
    assert {"blocks.0.lin", "blocks.1.lin", "blocks.1.act"} <= {row.module for row in report.modules if row.fx_node}


def test_a_departure_behind_a_graph_break_is_named_by_the_module_that_the_graph_runs_for(decompose: Any) -> None:
    model = Broken()
    with torch.no_grad():
        model.blocks[0].lin.bias.fill_(9)  # its activation takes nothing negative
    decompose(aten.elu.default, wrong_elu)
    assert_named(compare(model, (torch.randn(3, 4),), backward=True), "blocks.1.act")


@pytest.mark.parametrize("seed", [9, *(pytest.param(s, marks=pytest.mark.slow) for s in range(20) if s != 9)])
def test_thresholds_that_a_rounding_crosses_are_noise(seed: int) -> None:
    """With 9, 16 and 19 an element before the relu changes its sign between eager and ONNX Runtime."""
    torch.manual_seed(seed)
    model = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    assert_clean(compare(model, (torch.randn(2, 8, 32),), backward=True, autocast=torch.bfloat16))


class Doubling(nn.Module):
    """Steps each of which doubles an error; what they give in float64 is not known."""

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype == torch.float64:
            raise TypeError
        x = x.abs() / 4
        for _ in range(16):
            x = 3.99 * x * (1 - x)
        return x


def test_what_a_module_makes_of_another_rounding_is_noise_where_it_scatters_as_far(decompose: Any) -> None:
    decompose(aten.elu.default, lambda x, *_: torch.where(x > 0, x, x.exp() - 1))
    report = compare(nn.Sequential(nn.ELU(), Doubling()), (torch.randn(4, 8),))
    assert_clean(report)
    found = next(row for row in report.modules if row.module == "1")
    assert found.distance is not None
    assert found.distance.max_abs > 1e-4


def test_without_a_run_that_shows_scatter_the_module_departs_and_the_log_says_why(
    decompose: Any, monkeypatch: pytest.MonkeyPatch, said_by: Callable[[str], list[str]]
) -> None:
    def failing(*_: object) -> Outcome:
        raise RuntimeError("no such size")

    monkeypatch.setattr(Tracing, "_shaken", failing)
    decompose(aten.elu.default, lambda x, *_: torch.where(x > 0, x, x.exp() - 1))
    report = compare(nn.Sequential(nn.ELU(), Doubling()), (torch.randn(4, 8),))
    assert_named(report, "1")
    assert said_by("dort_compare.measure") == [
        "scatter is known of 0 runs, the next one fails: RuntimeError: no such size"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("autocast", [None, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_every_module_of_a_llama_agrees(attention: str, autocast: torch.dtype | None, seed: int) -> None:
    config = LlamaConfig(hidden=32, heads=4, kv_heads=2, intermediate=48, vocabulary=50, layers=2, attention=attention)
    module, inputs = build("model", config, seq=16, seed=seed)
    report = compare(module, inputs, backward=True, autocast=autocast)
    assert_clean(report)
    assert {row.status for row in report.modules} == {"ok"}, report.modules
    called = {name for name, _ in module.named_modules() if not name.endswith(("layers", "rotary_emb"))}
    assert {row.module for row in report.modules} >= called


class Routed(nn.Module):
    """Rows that go to the best of several experts, whose scores tie."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.Parameter(torch.randn(8, 16))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        best = (x.sum(-1, keepdim=True) * torch.ones(8)).topk(3).indices
        return self.experts[best].sum(1), best


def test_a_gradient_that_cancels_to_nothing_in_torch_is_noise_elsewhere() -> None:
    """Scores over the edges of a graph: a bias of all of them changes nothing."""

    class Edges(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.score = nn.Linear(8, 1)

        def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
            scores = self.score(torch.cat([x[source], x[target]], -1)).squeeze(-1)
            most = torch.full((5,), -1e9).scatter_reduce(0, target, scores, "amax")
            shares = (scores - most[target]).exp()
            shares = shares / torch.zeros(5).scatter_add(0, target, shares)[target]
            return torch.zeros_like(x).scatter_add(0, target[:, None].expand(-1, 4), x[source] * shares[:, None])

    ends = torch.tensor([0, 1, 2, 3, 4, 0, 1]), torch.tensor([1, 2, 3, 4, 0, 2, 4])
    for seed in (18, 22, 29):  # with others torch's is no zero
        torch.manual_seed(seed)
        assert_clean(compare(Edges(), (torch.randn(5, 4), *ends), backward=True))


class GraphAttention(nn.Module):
    """Each node attends to those with an edge to it, steeply."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.source, self.target = nn.Parameter(torch.randn(4, 4) / 2), nn.Parameter(torch.randn(4, 4) / 2)

    def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        heads = self.linear(x).unflatten(-1, (4, 4))
        scores = (heads * self.source).sum(-1)[source] + (heads * self.target).sum(-1)[target]
        scores, zeros = 30 * F.leaky_relu(scores, 0.2), torch.zeros(len(x), 4)
        places = target[:, None].expand_as(scores)
        shares = (scores - zeros.scatter_reduce(0, places, scores, "amax", include_self=False)[target]).exp()
        shares = shares / zeros.scatter_add(0, places, shares)[target]
        return x + F.elu(torch.zeros_like(heads).index_add(0, target, shares[..., None] * heads[source]).flatten(1))


class GraphNetwork(nn.Module):
    """Three layers of it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(GraphAttention() for _ in range(3))

    def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, source, target)
        return x.logsumexp(-1)


@pytest.mark.parametrize("seed", [1, 6, 8])
def test_the_gradient_of_a_maximum_that_backward_computes_again_scatters_and_is_noise(seed: int) -> None:
    torch.manual_seed(seed)
    source, target = torch.randint(60, (400,)), torch.cat([torch.arange(60), torch.randint(60, (340,))])
    assert_clean(compare(GraphNetwork(), (torch.randn(60, 16), source, target), backward=True))


CANCELLING: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "variance": (lambda x: x.var(-1), lambda x: 1 + 1e-7 * x),
    "determinant": (torch.linalg.det, lambda x: 1 + 1e-5 * x[:4, :4]),
    "running sum": (lambda x: x.cumsum(-1)[:, -1], lambda x: torch.cat([1e4 * x, -1e4 * x.flip(1)], 1)),
}


@pytest.mark.parametrize("name", CANCELLING)
def test_what_cancels_within_one_op_is_noise(name: str) -> None:
    function, operand = CANCELLING[name]

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return function(x)

    report = compare(Model(), (operand(torch.randn(8, 300)).requires_grad_(),), backward=True)
    assert report.verdict == "agree", str(report)


def test_what_follows_from_an_open_order_is_noise() -> None:
    """ONNX Runtime may sort equal elements another way than torch: the outputs differ, and both are right."""
    torch.manual_seed(0)
    report = compare(Routed(), (torch.randn(5, 4),), backward=True, loss=lambda found: found[0].square().sum())
    assert report.verdict == "agree", report.causes
    assert not all(row.distance and row.distance.equal for row in report.outputs)


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


class Branches(nn.Module):
    """Calls modules in branches, which torch traces in plain eager too."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.cond(x.sum() > 0, lambda y: self.first(y).sin(), lambda y: self.second(y), (x,)))


def test_modules_in_branches_are_no_calls_of_python() -> None:
    report = compare(Branches(), (torch.ones(3, 4),), backward=True)
    assert report.verdict == "agree", str(report)
    assert {row.module for row in report.modules} == {"", "last"}


class Scores(nn.Module):
    """Returns scores that nobody reads, and leaves a key of their shape in a cache; the graph has the scores in another
    shape where ``is_flat``."""

    def __init__(self, is_flat: bool) -> None:
        super().__init__()
        self.key = nn.Linear(4, 4)
        self.is_flat = is_flat

    def forward(self, x: Tensor, cache: list[Tensor]) -> tuple[Tensor, Tensor]:
        key = (self.key(x) * 2).view(1, 4, 4)
        cache.append(key)
        if self.is_flat:
            scores = (x @ key[0].mT).softmax(-1)
            return scores @ key[0], scores.view(1, 4, 4)
        scores = (x @ key.mT).softmax(-1)
        return (scores @ key)[0], scores


class Cached(nn.Module):
    def __init__(self, is_flat: bool) -> None:
        super().__init__()
        self.first, self.second = Scores(is_flat), Scores(is_flat)

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        cache: list[Tensor] = []
        for layer in (self.first, self.second):
            x, _ = layer(x, cache)
        return x, cache


@pytest.mark.parametrize("is_flat", [False, True])
def test_results_that_nobody_reads_are_not_held_against_others_of_their_shape(is_flat: bool) -> None:
    torch.manual_seed(0)
    call = (torch.randn(4, 4),)
    report = compare(Cached(is_flat), call, backward=True, loss=lambda results: results[0].square().sum())
    assert_clean(report)
    unread = [row.status for row in report.modules if row.leaf == "[1]"]
    assert unread == ["ok"] * (2 if is_flat else 4)


class Assigned(nn.Module):
    """Returns what it mixes, and weights that nobody reads, of the same shape: the graph does not compute them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.linear(x), (x @ x.mT).softmax(-1)


class Assigning(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.assign, self.norm = Assigned(), nn.LayerNorm(4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mixed, weights = self.assign(x)
        mixed += x
        return mixed + self.norm(mixed), weights


class Grouping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.assigning = Assigning()

    def forward(self, x: Tensor) -> Tensor:
        return self.assigning(x)[0]


def test_a_result_that_nobody_reads_is_not_held_against_one_that_eager_overwrites() -> None:
    assert_clean(compare(Grouping(), (torch.randn(2, 4, 4),), backward=True))


class Pooled(nn.Module):
    """Returns a sequence, which is a view of a product, and a view of it, as encoders return what they pool."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        sequence = self.linear(x)
        return sequence, sequence[:, 0]


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = Pooled(), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        sequence, pooled = self.inner(x)
        return sequence, pooled, self.head(pooled)


def test_gradients_by_views_that_are_made_anew_outside_are_not_held_against_their_part_in_the_graph() -> None:
    """The model returns the views: autograd goes back through them outside of the backward graph, and through the head
    within it."""
    assert_clean(compare(Encoder(), (torch.randn(2, 5, 8),), backward=True))


def test_a_wrong_gradient_is_named_beside_views_that_are_made_anew_outside(decompose: Any) -> None:
    decompose(aten.elu_backward.default, wrong_elu_backward)
    assert_named(compare(nn.Sequential(Block(), Encoder()), (torch.randn(2, 5, 8),), backward=True), "0.act")


class Logged(nn.Module):
    """Returns what a module in the middle made too, for a log: without a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.act, self.last = nn.Linear(8, 8), nn.ELU(), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.first(x)
        return self.last(self.act(hidden)), hidden.detach()


def test_a_view_that_is_returned_without_a_gradient_hides_no_departure(decompose: Any) -> None:
    decompose(aten.elu_backward.default, wrong_elu_backward)
    assert_named(compare(Logged(), (torch.randn(2, 5, 8),), backward=True), "act")


class Again(nn.Module):
    """Calls modules on the same value twice, and on another in between: the graph computes it once."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ELU()
        self.both = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        x = x + self.act(time)
        x = x * self.act(x)
        return x + self.act(time) * 2 + self.both(time) * self.both(time)


def test_modules_that_are_called_again_on_the_same_value_are_known_in_every_call() -> None:
    report = compare(Again(), (torch.randn(2, 4), torch.randn(2, 4, requires_grad=True)), backward=True)
    assert_clean(report)
    assert [row for row in report.modules if row.status == "unaligned"] == []
    nodes = {(row.module, row.call): row.fx_node for row in report.modules if row.kind == "output"}
    assert nodes["act", 0] == nodes["act", 2] != nodes["act", 1]
    assert nodes["both", 0] == nodes["both", 1]


def test_a_departure_is_named_in_every_call_that_was_merged(decompose: Any) -> None:
    decompose(aten.elu.default, wrong_elu)
    report = compare(Again(), (torch.randn(2, 4), torch.randn(2, 4, requires_grad=True)), backward=True)
    assert_named(report, "act")
    departing = {(row.module, row.call) for row in report.modules if (row.status, row.kind) == ("diverges", "output")}
    assert departing == {("act", 0), ("act", 1), ("act", 2), ("", 0)}


def test_nested_tensors_between_modules_are_passed_over() -> None:
    """torch's fast path packs what is padded, in plain eager alone."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    report = compare(model, (torch.randn(2, 5, 8),), {"src_key_padding_mask": padding})
    assert {row.status for row in report.rows} == {"ok"}
    (cause,) = report.causes  # what is padded is zeros on the fast path alone
    assert cause.reason.startswith("departs before ONNX")


@pytest.mark.parametrize("wrong", [0.0, 1e-3, 1])
def test_a_number_that_a_model_returns_is_held_against_eagers(wrong: float) -> None:
    class Scored(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, float]:
            y = x.sin()
            return y, y.sum().item() + wrong * torch.compiler.is_compiling()

    report = compare(Scored(), (torch.arange(4.0),))
    assert [row.name for row in report.outputs if not row.ok] == (["[1]"] if wrong else [])
    assert report.verdict == ("diverge" if wrong else "agree")
