"""What other routes from torch to ONNX Runtime got silently wrong, each against eager, whatever falls back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

aten = torch.ops.aten
INT64 = torch.iinfo(torch.int64)
TWO_THREADS = {"session_options": {"intra_op_num_threads": 2}}


def own(values: Any) -> Any:
    """Copies that keep strides and whether a gradient is asked for."""
    return tree_map_only(Tensor, lambda t: t.detach().clone().requires_grad_(t.requires_grad), values)


def run(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[list[Any], list[Tensor | None]]:
    """Results, and gradients of their products with numbers that bfloat16 holds exactly."""
    args = own(args)
    results = tree_leaves(function(*args))
    sources = [arg for arg in tree_leaves(args) if isinstance(arg, Tensor) and arg.requires_grad]
    outputs = [result for result in results if isinstance(result, Tensor) and result.requires_grad]
    if not outputs:
        return results, []
    weights = [torch.linspace(-2, 2, y.numel()).bfloat16().to(y.dtype).reshape(y.shape) for y in outputs]
    return results, list(torch.autograd.grad(outputs, sources, weights, allow_unused=True))


def like_eager(function: Callable[..., Any], *args: Any, exact: bool = False) -> None:
    """Values, dtypes, strides and gradients are eager's; to the last bit where ``exact``."""
    expected, expected_gradients = run(function, args)
    got, gradients = run(torch.compile(function, backend="dort"), args)
    tolerance = {"rtol": 0, "atol": 0} if exact else {"rtol": 2e-5, "atol": 1e-5}
    torch.testing.assert_close(got, expected, equal_nan=True, check_stride=True, **tolerance)
    torch.testing.assert_close(gradients, expected_gradients, equal_nan=True, **tolerance)


def leaf(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


# Losses and normalization.


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(
    "options",
    [{}, {"ignore_index": 2}, {"weight": torch.tensor([0.2, 1.0, 3.0, 0.5, 2.0])}, {"label_smoothing": 0.1},
     {"ignore_index": 2, "weight": torch.tensor([0.2, 1.0, 3.0, 0.5, 2.0]), "label_smoothing": 0.2}],
    ids=["plain", "ignored", "weighted", "smoothed", "all"],
)  # fmt: skip
def test_cross_entropy(options: dict[str, Any], reduction: str) -> None:
    target = torch.tensor([0, 2, 4, 1, 2, 3])
    like_eager(lambda x: F.cross_entropy(x, target, reduction=reduction, **options), leaf(6, 5))


def test_cross_entropy_of_images_and_of_probabilities() -> None:
    like_eager(F.cross_entropy, leaf(2, 5, 3, 4), torch.randint(5, (2, 3, 4)))
    like_eager(F.cross_entropy, leaf(6, 5), torch.softmax(torch.randn(6, 5), 1))


def test_cross_entropy_where_everything_is_ignored_is_nan() -> None:
    like_eager(F.cross_entropy, leaf(3, 5), torch.full((3,), -100))


@pytest.mark.parametrize("momentum", [0.1, None])
def test_batch_norm_learns_its_statistics(momentum: float | None) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, momentum=momentum), nn.ReLU())
    other = copy.deepcopy(model)
    compiled = torch.compile(other, backend="dort")
    for _ in range(3):
        x = torch.randn(2, 3, 6, 6) * 3 + 1
        expected, got = model(x), compiled(x)
        expected.square().sum().backward()
        got.square().sum().backward()
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(other.state_dict(), model.state_dict(), rtol=1e-5, atol=1e-5)
    gradients = [[p.grad for p in m.parameters()] for m in (other, model)]
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-3)
    assert int(other[1].num_batches_tracked) == 3
    torch.testing.assert_close(compiled.eval()(x), model.eval()(x), rtol=1e-5, atol=1e-5)


def test_batch_norm_without_statistics_or_weights() -> None:
    like_eager(lambda x: F.batch_norm(x, None, None, training=True), leaf(4, 3, 5))


# Attention.


@pytest.mark.parametrize("kind", ["none", "causal", "boolean", "additive"])
def test_scaled_dot_product_attention_trains(kind: str) -> None:
    mask = {"boolean": torch.ones(5, 5, dtype=torch.bool).tril(), "additive": torch.randn(5, 5)}.get(kind)
    q, k, v = (leaf(2, 3, 5, 8) for _ in range(3))
    like_eager(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, mask, is_causal=kind == "causal"), q, k, v)


def test_rotated_halves() -> None:
    def function(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-second, first), dim=-1) * sin

    like_eager(function, leaf(2, 3, 4, 8), torch.randn(4, 8), torch.randn(4, 8))


# Sums over repeated indices: ONNX Runtime's ScatterND loses some where two threads add to one element.


def repeated_gradient(kind: str, table: Tensor, index: Tensor) -> Tensor:
    if kind == "embedding":
        return F.embedding(index, table)
    if kind == "index":
        return table[index]
    return table.index_put((index,), torch.ones(len(index), table.shape[1]), accumulate=True) * 2


@pytest.mark.parametrize("kind", ["embedding", "index", "index_put"])
def test_sums_over_repeated_indices_are_the_same_every_time(kind: str) -> None:
    table, index = leaf(200, 64), torch.randint(50, (1024,))
    compiled = torch.compile(lambda t: repeated_gradient(kind, t, index), backend="dort", options=TWO_THREADS)
    runs = []
    for _ in range(50):
        result = compiled(table)
        runs.append((result.detach(), *torch.autograd.grad(result.cos().sum(), table)))
    expected = repeated_gradient(kind, table, index)
    torch.testing.assert_close(runs[0][0], expected.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(runs[0][1], *torch.autograd.grad(expected.cos().sum(), table), rtol=1e-4, atol=1e-4)
    assert all(torch.equal(a, b) for one in runs[1:] for a, b in zip(one, runs[0], strict=True))


def test_index_put_of_repeated_indices() -> None:
    index = torch.tensor([0, 3, 0, 3, 3])
    like_eager(lambda x, v: x.index_put((index,), v, accumulate=True), leaf(4, 2), leaf(5, 2))
    like_eager(lambda x, v: x.index_put((index,), v, accumulate=True), torch.ones(4), torch.tensor(0.5))
    like_eager(lambda x: x.index_put((index, index), torch.tensor(2), accumulate=True), torch.zeros(4, 4).long())
    like_eager(lambda x, v: x.scatter_add(0, index, v).index_add(0, index, v), leaf(4), leaf(5))


# Random numbers.


def test_dropout_follows_torchs_seed_forward_and_backward() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.4), nn.Linear(8, 4), nn.Dropout(0.4))
    compiled = torch.compile(model, backend="dort")
    x = leaf(5, 8)
    found = []
    for call in (model, compiled, compiled):
        torch.manual_seed(7)
        result = call(x)
        found.append((result, *torch.autograd.grad(result.square().sum(), [x, *model.parameters()])))
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-5)
    assert all(torch.equal(a, b) for a, b in zip(found[1], found[2], strict=True))


# Integers.


def integer_pairs() -> Iterator[Any]:
    numbers = torch.tensor([-7, -6, -1, 0, 1, 6, 7])
    for mode in ("trunc", "floor", None):
        yield f"div {mode}", lambda a, b, mode=mode: torch.div(a, b, rounding_mode=mode), (numbers, torch.tensor(-3))
    yield "remainder", torch.remainder, (numbers, torch.tensor(3))
    yield "remainder, negative", lambda a: (a % -3, a // -3, torch.fmod(a, -3)), (numbers,)
    yield "float remainder", lambda a: (a % -3, a // -3, torch.fmod(a, 3), a % 2.5), (numbers / 2,)
    yield "float remainder by infinity", lambda a: (a % torch.inf, a % -torch.inf), (numbers / 2,)
    large = torch.tensor([2**24 + 1, 2**53 + 1])
    yield "above 2^24", lambda a: (a + 1, a * 3, a - 5, a.max(), a // 7, (a // 2).sum()), (large,)
    yield "wrap", lambda a: (a + 1, a * 2, -a, a.abs()), (torch.tensor([INT64.max, INT64.min, -1]),)
    small = torch.tensor([0, 1, 200, 255], dtype=torch.uint8)
    yield "uint8", lambda a, b: (a - b, a + b, a * b, -a, ~a, a // 3, a % 7), (small, small.flip(0))
    yield "uint8 sums", lambda a: (a.sum(), a.float().mean(), a.max(), a.argmax(), a.cumsum(0)), (small,)
    int8 = torch.tensor([-128, -1, 0, 127], dtype=torch.int8)
    yield "int8", lambda a: (a - 1, -a, a.abs(), a * a, a // 2, a % 5), (int8,)
    yield "shifts", lambda a: (a << 3, a >> 2, a ^ 5, a & 6, a | 9), (numbers,)
    yield "sums of booleans", lambda a: (a.sum(), a.sum(1), a.cumsum(1), a.prod()), (torch.rand(3, 4) > 0.4,)
    yield "mean of integers", lambda a: a.sum() / a.numel(), (numbers,)


@pytest.mark.parametrize(("function", "args"), [pytest.param(f, a, id=name) for name, f, a in integer_pairs()])
def test_integers(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    like_eager(function, *args, exact=True)


# Awkward floats.

NAN, INF = float("nan"), float("inf")
AWKWARD = torch.tensor([[1.0, NAN, -INF], [0.5, -0.0, 2.5], [INF, 1.5, -2.5]])


def awkward_floats() -> Iterator[Any]:
    ties = torch.tensor([[1.0, 3.0, 3.0, 0.0], [2.0, 2.0, 2.0, 2.0]])
    yield "argmax ties", lambda x: (x.argmax(1), x.argmin(1), x.argmax(), x.max(1), x.min(1)), (ties,)
    yield "extremes of NaN", lambda x: (x.max(), x.min(), x.amax(1), x.amin(0), x.max(1), x.argmax(1)), (AWKWARD,)
    yield "maximum", lambda x: (torch.maximum(x, x.t()), torch.minimum(x, x.t()), torch.fmax(x, x.t())), (AWKWARD,)
    yield "clamp", lambda x: (x.clamp(-1, 1), x.clamp(min=0), x.clamp(max=0), x.clamp(x.t(), x + 1)), (AWKWARD,)
    yield "sort", lambda x: (x.sort(dim=1, stable=True), x.sort(dim=0, descending=True, stable=True)), (AWKWARD,)
    yield "relu", lambda x: (x.relu(), F.silu(x), F.leaky_relu(x), F.hardtanh(x)), (AWKWARD,)
    yield "gelu", F.gelu, (AWKWARD.clamp(max=9),)  # of infinity torch's kernel for AVX-512 makes NaN
    yield "predicates", lambda x: (x.isnan(), x.isinf(), x.isfinite(), x == x.t(), x != x.t(), x.sign()), (AWKWARD,)
    yield "round", lambda x: (x.round(), x.floor(), x.ceil(), x.trunc(), x.frac()), (torch.arange(-7, 8) / 2,)
    yield "round to decimals", lambda x: x.round(decimals=1), (torch.tensor([0.25, 0.35, -0.25, 2.65]),)
    bases = torch.tensor([-2.0, -0.5, -0.0, 0.0, 0.5, 2.0])
    yield "powers", lambda x: (x**3, x**2, x**0.5, x**-1, x**-2, x**0, x**2.5), (bases,)
    yield "powers by tensors", lambda x: torch.pow(x[:, None], torch.tensor([-2.0, -1, 0, 0.5, 1, 3])), (bases,)
    yield "powers of numbers", lambda x: (2**x, torch.pow(-2.0, x.round())), (bases,)
    yield "logarithms", lambda x: (x.log(), x.sqrt(), x.rsqrt(), x.log1p(), x.reciprocal()), (bases,)
    yield "sums of infinities", lambda x: (x.sum(), x.mean(1), x.logsumexp(1), x.softmax(1)), (AWKWARD,)


@pytest.mark.parametrize(("function", "args"), [pytest.param(f, a, id=name) for name, f, a in awkward_floats()])
def test_awkward_floats(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    like_eager(function, *args)


def test_casts_of_large_floats() -> None:
    """What lies outside of an integer type is undefined in C; what lies inside must be right to the last digit."""
    inside = torch.tensor([2.0**31 - 128, -(2.0**31), 1e9, -1e9, 0.9, -0.9, 255.5])
    like_eager(lambda x: (x.int(), x.long()), inside, exact=True)
    like_eager(lambda x: x.long(), torch.tensor([2.0**53 - 1, -(2.0**62), 9e18, 123456789012.7]).double(), exact=True)
    like_eager(lambda x: (x.half(), x.bfloat16(), x.double()), torch.tensor([1e30, -1e30, 65519.0, 65520.0, 1e-30]))
    like_eager(lambda x: (x.float(), x.double(), x.half()), torch.tensor([2**24 + 1, 2**53 + 1, -70000]), exact=True)


def test_float64_stays_float64() -> None:
    x = leaf(4, 5, dtype=torch.float64)
    expected, expected_gradients = run(lambda x: (x @ x.t() / 3).softmax(1).log(), (x,))
    got, gradients = run(torch.compile(lambda x: (x @ x.t() / 3).softmax(1).log(), backend="dort"), (x,))
    torch.testing.assert_close((got, gradients), (expected, expected_gradients), rtol=1e-13, atol=1e-13)


# Empty and 0-d tensors.


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_empty_reductions(shape: tuple[int, ...]) -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        return x.sum(), x.mean(), x.prod(), x.sum(-1), x.mean(0), x.sum(0, keepdim=True), (x > 0).any(), (x > 0).all()

    like_eager(function, torch.ones(shape))
    like_eager(lambda x: (x @ x.t() if x.ndim == 2 else x).softmax(-1).sum(), leaf(*shape))


def test_reductions_of_numbers() -> None:
    like_eager(lambda x: (x.sum(), x.mean(), x.max(), x.argmax(), x.var(correction=0), x.softmax(0)), torch.tensor(3.0))


def test_0d_indices() -> None:
    x, i = leaf(4, 3), torch.tensor(2)
    like_eager(lambda x: (x[i], x[:, i], x[i, i], x.index_select(0, i), x.select(1, -1)), x)
    like_eager(lambda x: x.index_put((i,), torch.tensor(1.0)), x)
    like_eager(lambda x: x.gather(0, i), leaf(4))


# Strides.


def channels_last(*shape: int) -> Tensor:
    return torch.randn(shape).to(memory_format=torch.channels_last)


def with_views(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    return y, y.t(), y[0], y[:, 1]


def strided() -> Iterator[Any]:
    yield "transposed", lambda x: x.t() + 1, (torch.randn(3, 4),)
    yield "permuted", lambda x: x.permute(2, 0, 1).sin(), (torch.randn(2, 3, 4),)
    yield "view of a result", lambda x: (x @ x.t()).t(), (torch.randn(3, 4),)
    yield "result and views", with_views, (torch.randn(3, 4),)
    yield "expanded", lambda x: (x + 1).expand(4, 3), (torch.randn(1, 3),)
    yield "expanded input", lambda x: x.expand(4, 3), (torch.randn(1, 3),)
    yield "sliced", lambda x: ((x * 2)[:, 1:], (x * 3)[::2, ::2]), (torch.randn(4, 6),)
    yield "selected", lambda x: ((x * 2)[:, 0], (x * 2).diagonal()), (torch.randn(4, 6),)
    yield "chunks", lambda x: (x * 2).chunk(2, 1), (torch.randn(3, 4),)
    yield "heads", lambda x: [y.transpose(1, 2) for y in (x * 2).view(2, 5, 3, 4).unbind(2)], (torch.randn(2, 5, 12),)
    yield "windows", lambda x: (x * 2).unfold(1, 2, 1), (torch.randn(3, 4),)
    yield "memory of a transpose", lambda x: (x * 2).t().as_strided((2, 2), (1, 2), 1), (torch.randn(3, 4),)
    yield "memory of a transpose, read", lambda x: (x * 2).t().as_strided((2, 2), (1, 2), 1) + 1, (torch.randn(3, 4),)
    yield "not contiguous", lambda x: x * 2, (torch.randn(4, 6)[:, ::2],)
    yield "channels last", lambda x: x.relu(), (channels_last(2, 3, 4, 5),)
    yield "channels last, joined", lambda x: torch.cat([x, x + 1], 1), (channels_last(2, 3, 4, 5),)
    as_asked = {"memory_format": torch.channels_last}
    yield "channels last, asked for", lambda x: (x * 2).to(**as_asked), (torch.randn(2, 3, 4, 5),)
    yield "convolution", F.conv2d, (channels_last(2, 3, 6, 6), channels_last(4, 3, 3, 3))
    yield "attention", lambda q: F.scaled_dot_product_attention(q, q, q), (torch.randn(2, 5, 3, 8).transpose(1, 2),)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(("function", "args"), [pytest.param(f, a, id=name) for name, f, a in strided()])
def test_outputs_have_the_strides_that_eager_gives(
    function: Callable[..., Any], args: tuple[Any, ...], dynamic: bool
) -> None:
    expected = tree_leaves(function(*args))
    got = tree_leaves(torch.compile(function, backend="dort", dynamic=dynamic)(*args))
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    assert [y.stride() for y in got] == [y.stride() for y in expected]
    assert [y.storage_offset() for y in got] == [y.storage_offset() for y in expected]


def test_results_and_their_views_share_memory() -> None:
    y, transposed, row, column = torch.compile(with_views, backend="dort")(torch.randn(3, 4))
    y.zero_()
    assert not any(view.any() for view in (transposed, row, column))
