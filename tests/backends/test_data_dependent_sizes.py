"""Graphs whose sizes depend on data, which dynamo captures where its two flags are set, and the checks in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from dort_compare import DebugBackend, compare
from dort_compare.errors import CheckError

pytestmark = pytest.mark.usefixtures("sizes_captured")

Args = tuple[Any, ...]
NONE = [0] * 5
MASKS = ([1, 0, 1, 1, 0], NONE, [1] * 5, [0, 0, 0, 1, 0])


class Experts(nn.Module):
    """A mixture of experts, each called on the tokens that the router sends it: here and there on none."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 4)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.gate(x).softmax(-1).topk(2, -1)
        mask = F.one_hot(chosen, 4).permute(2, 1, 0)
        out = torch.zeros_like(x)
        for expert, sent in zip(self.experts, mask, strict=True):
            rank, token = torch.where(sent)
            out.index_add_(0, token, expert(x[token]) * weights[token, rank, None])
        return out


def by_mask(function: Callable[[Tensor], Any]) -> tuple[Callable[..., Any], list[Args]]:
    """``function`` of the rows that a mask lets through, for one graph and several masks."""
    rows = torch.linspace(-2, 2, 30).sin().reshape(5, 6)
    return lambda x, mask: function(x[mask]), [(rows, torch.tensor(mask, dtype=torch.bool)) for mask in MASKS]


def written(x: Tensor, mask: Tensor) -> Tensor:
    y = x * 2
    y[mask] = x[mask].exp()
    return y


def scaled(x: Tensor) -> Tensor:
    return (x * x.detach().abs().max().item()).sum()


def first(x: Tensor, n: Tensor) -> Tensor:
    return x[: n.item()] * 2


def normalized(x: Tensor) -> Tensor:
    return torch.group_norm(F.layer_norm(x, (6,)), 2)


def attended(x: Tensor) -> Tensor:
    y = x.reshape(-1, 1, 3, 2)
    return F.scaled_dot_product_attention(y, y, y)


def restored(x: Tensor) -> Tensor:
    return torch.zeros(5, 6).masked_scatter(torch.arange(5)[:, None] < x.shape[0], x)


def vectors(*lists: list[int]) -> list[Args]:
    return [(torch.tensor(each),) for each in lists]


CASES: dict[str, tuple[Callable[..., Any], list[Args]]] = {
    "experts": (Experts(), [(torch.randn(6, 8),) for _ in range(3)]),
    "rows": by_mask(torch.exp),
    "sum and mean": by_mask(lambda x: (x.sum(), x.mean(), x.mean(0), x.mean(1), x.amax(1, keepdim=True))),
    "cross entropy": by_mask(lambda x: F.cross_entropy(x, x.argmax(1))),
    "normalized": by_mask(normalized),
    "attention": by_mask(attended),
    "masked_scatter": by_mask(restored),
    "index_add": by_mask(lambda x: torch.zeros(9, 6).index_add(0, torch.arange(x.shape[0]), x)),
    "scatter": by_mask(lambda x: torch.zeros(5, 6).scatter(0, torch.zeros_like(x).long().cumsum(0), x)),
    "scatter_add": by_mask(lambda x: torch.zeros(40).scatter_add(0, (x > 0).nonzero()[:, 1], x[x > 0])),
    "masked_select": by_mask(lambda x: (x[x > 0].detach().masked_select(torch.tensor([True])), x * 2)),
    "unique": by_mask(lambda x: (*torch.unique(x[:, 0] > 0, return_inverse=True, return_counts=True), x * 2)),
    "bincount": by_mask(lambda x: (torch.bincount((x[:, 0] > 0).long(), minlength=3), x * 2)),
    "determinants": by_mask(lambda x: (torch.linalg.slogdet(x[:, :4].detach().reshape(-1, 2, 2)), x * 2)),
    "written": (written, by_mask(torch.exp)[1]),
    "item as factor": (scaled, [(torch.randn(4, 3),) for _ in range(2)]),
    "item as size": (first, [(torch.randn(7), torch.tensor(n)) for n in (3, 5, 7)]),
    "item returned": (lambda x: (x.sum().item(), x * 2), vectors([1, 2], [3, 4])),
    "nonzero": (lambda x: (torch.nonzero(x), torch.argwhere(x), x.sum()), vectors([0, 2, 1, 0], [1, 1, 1, 1], [0] * 4)),
    "repeat_interleave": (
        lambda x, n: x.repeat_interleave(n, 0) * 2,
        [(torch.randn(3, 2), torch.tensor(n)) for n in ([1, 0, 3], [0, 0, 0], [2, 2, 2])],
    ),
    "unique numbers": (lambda x: torch.unique(x), vectors([3, 1, 1, 2], [3, 3, 3, 3])),
    "unique neighbours": (
        lambda x: torch.unique_consecutive(x, return_counts=True),
        vectors([3, 1, 1, 3], [3, 3, 3, 3]),
    ),
    "counts of numbers": (lambda x: torch.bincount(x), vectors([1, 2, 2, 5], [0, 0, 9, 1])),
}  # fmt: skip


def results(function: Callable[..., Any], parameters: list[Tensor], args: Args) -> list[Any]:
    """Outputs and gradients of a call."""
    own = [arg.clone().requires_grad_(arg.is_floating_point()) for arg in args]
    outputs = tree_leaves(function(*own))
    differentiable = [each for each in outputs if isinstance(each, Tensor) and each.requires_grad]
    wanted = [arg for arg in own if arg.requires_grad] + parameters
    if not differentiable:
        return outputs
    given = [torch.linspace(-1, 1, output.numel()).reshape(output.shape) for output in differentiable]
    return [*outputs, *torch.autograd.grad(differentiable, wanted, given, allow_unused=True)]


@pytest.mark.parametrize("name", CASES)
def test_one_session_serves_whatever_the_data_say_forward_and_backward(name: str) -> None:
    function, runs = CASES[name]
    parameters = list(function.parameters()) if isinstance(function, nn.Module) else []
    backend = DebugBackend(fallback=False)
    compiled = torch.compile(function, backend=backend, fullgraph=True)
    for args in runs:
        got, expected = (results(each, parameters, args) for each in (compiled, function))
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5, equal_nan=True)
    assert len(backend.graphs) == len({graph.phase for graph in backend.graphs})


def shown(x: Tensor) -> tuple[Tensor, ...]:
    y = x[x > 0][:, None] + torch.ones(1, 3)
    return y, y.t(), y[1:], y[:, ::2], y.t()[None]


LAYOUTS: dict[str, Callable[[Tensor], tuple[Tensor, ...]]] = {
    "views": shown,
    "copies of views": lambda x: ((x[x > 0][:, None] + torch.ones(3)).t().clone(), x.nonzero().t().clone() * 2),
    "two sizes": lambda x: ((x[x > 0][:, None] + x[x < 1]).t().clone(), x[x > 0][:, None] + x[x < 1]),
    "several": lambda x: (x[x > 0].view(-1, 1, 1) + torch.ones(3, 5)).permute(2, 0, 1).clone().unbind(),
}


@pytest.mark.parametrize("name", LAYOUTS)
@torch.no_grad()
def test_results_of_such_sizes_lie_in_memory_as_eagers_do(name: str) -> None:
    function = torch.compile(LAYOUTS[name], backend=DebugBackend(providers=["cpu"], fallback=False))
    for numbers in ([1.0, -1, 2, 3], [0.5, 2, 3, 4, 5], [0.1, 0.2, -1]):
        results = [each(torch.tensor(numbers)) for each in (function, LAYOUTS[name])]
        for got, expected in zip(*results, strict=True):
            assert (got.shape, got.stride()) == (expected.shape, expected.stride())
        for outputs in results:
            outputs[0].fill_(7)
        torch.testing.assert_close(*results)


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_views_of_inputs_lie_where_the_data_say(dtype: torch.dtype, dim: int) -> None:
    """torch makes such a view anew, with the strides and the offset that it reads off the graph's result."""
    function = lambda x, places: (*x.tensor_split(places, dim), x * 2)  # noqa: E731
    compiled = torch.compile(function, backend="dort", fullgraph=True)
    x = torch.randn(5, 4, 3, dtype=dtype, requires_grad=True)
    for places in ([1, 2], [0, 3]):
        results = [each(x, torch.tensor(places)) for each in (compiled, function)]
        torch.testing.assert_close(*results)
        for got, expected in zip(*results, strict=True):
            assert got.storage_offset() == expected.storage_offset()
        gradients = [torch.autograd.grad(each, x, list(map(torch.ones_like, each))) for each in results]
        torch.testing.assert_close(*gradients)


def test_a_comparison_takes_such_a_model() -> None:
    report = compare(Experts(), (torch.randn(6, 8),), backward=True)
    assert report.verdict == "agree"


def rounded_up(x: Tensor) -> Tensor:
    """What float32 rounds up, and float64 does not: nowhere there, for ``ROUNDED_UP``."""
    return (x * 0.1) * 10 > x


def counted(x: Tensor) -> Tensor:
    n = rounded_up(x).sum().item()
    torch._check(n >= 1, lambda: "needs one")
    return x * n


def asserted(x: Tensor) -> Tensor:
    torch._assert_async(rounded_up(x).any(), "async")
    return x * 2


def product(x: Tensor) -> Tensor:
    return x[rounded_up(x)].reshape(2, -1) @ x.reshape(4, 2)


def largest(x: Tensor) -> Tensor:
    return x[rounded_up(x)].max()


def selected(x: Tensor) -> Tensor:
    return torch.masked_select(x, rounded_up(x)).max()


def cut_off(x: Tensor) -> Tensor:
    """A size that is a float first."""
    return x[: int((rounded_up(x).float().mean() * 4).item())].max()


def looked_up(x: Tensor) -> Tensor:
    """The index is out of range for float64."""
    return x[8 - rounded_up(x).long()]


ROUNDED_UP = torch.tensor([0.4327, 1.2511, 0.3335, 0.7234, 1.6728, 0.8601, 1.4135, 0.6655])
IN_FLOAT32_ONLY = (counted, asserted, product, largest, selected, cut_off, looked_up)


class Called(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@pytest.mark.parametrize("function", IN_FLOAT32_ONLY)
def test_a_comparison_takes_a_model_whose_sizes_and_checks_come_out_differently_in_float64(function: Any) -> None:
    assert rounded_up(ROUNDED_UP).all()
    assert not rounded_up(ROUNDED_UP.double()).any()
    assert compare(Called(function), (ROUNDED_UP,)).verdict == "agree"


def below_four(x: Tensor) -> Tensor:
    """torch makes an assertion of the condition, with a message of its own."""
    size = (x > 0).sum().item()
    torch._check(size < 4, lambda: "too many")
    return x[:size] * 2


def all_positive(x: Tensor) -> Tensor:
    """What dynamo makes of ``assert (x > 0).all(), "not positive"``, which pytest rewrites here."""
    torch._assert_async((x > 0).all(), "not positive")
    return x * 2


def around_a_fallback(x: Tensor) -> Tensor:
    """A check in a graph that is cut."""
    return below_four(x + 0 * torch.linalg.eigvalsh(torch.diag(x)))


def allocated(x: Tensor) -> Tensor:
    """A check that guards the size of what is made."""
    size = x[0].long().item()
    torch._check(size >= 0)
    return torch.zeros(size) + 1


def picked(x: Tensor) -> Tensor:
    """A check that guards an index."""
    i = x[0].long().item()
    torch._check(i >= 0)
    torch._check(i < x.shape[0])
    return x[i] * 2


GOOD, BAD = torch.tensor([1.0, 2, 3]), torch.tensor([-1.0, 1, 2, 3, 4, 5])
CHECKS = {
    "torch._check": (below_four, GOOD, BAD, "u0 <= 3"),
    "assert": (all_positive, GOOD, BAD, "not positive"),
    "size": (allocated, GOOD, BAD, "u0 >= 0"),
    "index": (picked, GOOD, GOOD + 3, "u0 < s"),
    "around a fallback": (around_a_fallback, GOOD, BAD, "u0 <= 3"),
}


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_of_the_model_stays_an_error(name: str) -> None:
    function, good, bad, message = CHECKS[name]
    backend = DebugBackend()
    compiled = torch.compile(function, backend=backend, fullgraph=True, dynamic=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(good), function(good))
        with pytest.raises(RuntimeError):
            function(bad)
        with pytest.raises(RuntimeError, match=message):
            compiled(bad)
    assert bool(backend.fallbacks) == (name == "around a fallback")


def test_the_error_of_a_check_is_ours_and_says_what_torch_says() -> None:
    compiled = torch.compile(below_four, backend="dort", dynamic=True)
    compiled(GOOD)
    with pytest.raises(CheckError, match="u0 <= 3"):
        compiled(BAD)


def test_a_negative_number_is_no_bin() -> None:
    compiled = torch.compile(torch.bincount, backend=DebugBackend(fallback=False))
    for numbers in ([-1, 2], [-1, -1], [2, -3]):
        with pytest.raises(RuntimeError):
            compiled(torch.tensor(numbers))
