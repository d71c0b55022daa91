"""Roundings that modules enlarge are no departure."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from blocks_of_modules import assert_clean, assert_named
from torch import Tensor, nn
from torch.nn import functional as F

from dort_compare import compare
from dort_compare.measure.before_onnx.tracing import Tracing
from dort_compare.trace import Outcome

aten = torch.ops.aten


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


class Twofold(nn.Module):
    """Three times ``x`` where it is compiled, twice in eager, ``x`` itself in float64."""

    def forward(self, x: Tensor) -> Tensor:
        return x if x.dtype == torch.float64 else x * (3 if torch.compiler.is_compiling() else 2)


def test_where_float64_computes_something_else_it_is_no_measure() -> None:
    report = compare(Twofold(), (torch.randn(4, 8),))
    assert report.verdict == "diverge"
    assert [row.noise_floor < 1e-3 for row in report.outputs] == [True]


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
