"""One ONNX model, and one session, for every size: however torch.compile was told that sizes change."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import onnx
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from dort_compare import DebugBackend
from dort_compare.models import build
from dort_compare.models.llama import LlamaConfig

WIDTH, HEADS, VOCABULARY = 8, 2, 11
WAYS = ("dynamic", "mark_dynamic", "automatic")
Args = tuple[Any, ...]


class SelfAttention(nn.Module):
    """Attention whose sizes are all read from its input; ``kind`` says by which arithmetic and mask."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.project, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.project(x).split(width, -1)
        query, key, value = (y.view(batch, length, HEADS, width // HEADS).transpose(1, 2) for y in parts)
        mixed = self.attend(query, key, value, length)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    def attend(self, query: Tensor, key: Tensor, value: Tensor, length: int) -> Tensor:
        if self.kind == "eager":
            future = torch.ones(length, length, dtype=torch.bool).triu(1)
            scores = (query @ key.transpose(-1, -2)) / math.sqrt(query.size(-1))
            return scores.masked_fill(future, -math.inf).softmax(-1) @ value
        if self.kind == "alibi":
            place = torch.arange(length)
            bias = (place[:, None] - place).abs() * torch.tensor([-0.5, -0.25])[:, None, None]
            return F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        return F.scaled_dot_product_attention(query, key, value, is_causal=self.kind == "causal")


class Positions(nn.Module):
    """Tokens and places looked up in tables."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH, padding_idx=1), nn.Embedding(64, WIDTH)
        self.offsets = nn.Parameter(torch.randn(1, 64, WIDTH))

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        return self.tokens(tokens) + self.places(torch.arange(length)) + self.offsets[:, :length]


class Patches(nn.Module):
    """The front of a vision transformer without its convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.first = nn.Linear(12, WIDTH), nn.Parameter(torch.randn(1, 1, WIDTH))
        self.attention = SelfAttention("sdpa")

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        x = x.reshape(batch, channels, height // 2, 2, width // 2, 2).permute(0, 2, 4, 1, 3, 5)
        x = self.project(x.reshape(batch, (height // 2) * (width // 2), channels * 4))
        x = self.attention(torch.cat([self.first.expand(batch, -1, -1), x], 1))
        return x[:, 0] + x[:, 1:].mean(1)


class Cache(nn.Module):
    """A step of decoding: the keys and values of the past grow by those of the new tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = self.project(x).chunk(3, -1)
        keys, values = torch.cat([keys, key], 1), torch.cat([values, value], 1)
        return F.scaled_dot_product_attention(query, keys, values), keys, values


def rotated(x: Tensor) -> Tensor:
    """Rotary embedding, its angles made from the length, its halves from the width."""
    length, width = x.shape[1:]
    rates = torch.exp(torch.arange(0, width, 2, dtype=torch.float32) * (-4 / width))
    angles = torch.outer(torch.arange(length).float(), rates).repeat(1, 2)
    halves = torch.cat((-x[..., width // 2 :], x[..., : width // 2]), -1)
    return x * angles.cos() + halves * angles.sin()


def scaled_by_sizes(x: Tensor) -> Tensor:
    batch, length, _ = x.shape
    return x * min(batch * 2, length) ** 2 / math.sqrt(length) + x.mean() * max(batch, length // 2) - batch % 3


def pieces(x: Tensor) -> Tensor:
    first, second = x.chunk(2, 1)
    return torch.cat([second[:, ::2].sum(1), first[:, -1], x[:, x.shape[1] // 2 :].amax(1)], -1)


@dataclass(frozen=True)
class Case:
    """A model, how its arguments are made from sizes, the sizes in turn, and the dimensions that change."""

    make: Callable[[], Callable[..., Any]]
    sizes: tuple[tuple[int, ...], ...]
    arguments: Callable[..., Args]
    changing: tuple[int, ...] = (0, 1)


def hidden(*sizes: int) -> Args:
    return (torch.randn(*sizes, WIDTH),)


def tokens(*sizes: int) -> Args:
    return (torch.randint(VOCABULARY, sizes),)


def cached(batch: int, length: int, past: int) -> Args:
    return torch.randn(batch, length, WIDTH), torch.randn(batch, past, WIDTH), torch.randn(batch, past, WIDTH)


def grouped(batch: int, length: int, heads: int) -> Args:
    """Two heads of queries to each of keys and values."""
    return tuple(torch.randn(batch, each, length, WIDTH) for each in (heads, heads // 2, heads // 2))


def llama(attention: str) -> nn.Module:
    config = LlamaConfig(
        hidden=16, heads=4, kv_heads=2, intermediate=24, vocabulary=VOCABULARY, layers=1, attention=attention
    )
    return build("model", config, batch=2, seq=4)[0]


SIZES = ((2, 6), (3, 10), (5, 8))
CASES = {
    "mlp": Case(lambda: nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 12), nn.GELU(), nn.Linear(12, 8)), SIZES, hidden),
    "rms norm": Case(lambda: nn.RMSNorm(8), SIZES, hidden),
    "eager attention": Case(lambda: SelfAttention("eager"), SIZES, hidden),
    "attention": Case(lambda: SelfAttention("sdpa"), SIZES, hidden),
    "causal attention": Case(lambda: SelfAttention("causal"), SIZES, hidden),
    "biased attention": Case(lambda: SelfAttention("alibi"), SIZES, hidden),
    "grouped attention": Case(
        lambda: lambda *of: F.scaled_dot_product_attention(*of, is_causal=True, enable_gqa=True),
        ((3, 6, 4), (2, 10, 12), (5, 9, 14)),
        grouped,
        (0, 1, 2),
    ),
    "positions": Case(Positions, SIZES, tokens),
    "patches": Case(Patches, ((2, 4, 6), (3, 6, 8), (5, 8, 4)), lambda b, h, w: (torch.randn(b, 3, h, w),), (0, 2, 3)),
    "cache": Case(Cache, ((2, 3, 5), (3, 4, 6), (3, 4, 10)), cached),
    "llama": Case(lambda: llama("eager"), SIZES, tokens),
    "llama with fused attention": Case(lambda: llama("sdpa"), SIZES, tokens),
    "rotary embedding": Case(lambda: rotated, SIZES, hidden),
    "scaled by sizes": Case(lambda: scaled_by_sizes, SIZES, hidden),
    "pieces": Case(lambda: pieces, SIZES, hidden),
}
IN_EVERY_WAY = ("cache", "grouped attention")
SLOW = ("llama", "biased attention", "eager attention")


def is_slow(name: str, way: str) -> bool:
    return name in SLOW if way == "dynamic" else name not in IN_EVERY_WAY


EVERY = [
    pytest.param(name, way, id=f"{name}-{way}", marks=[pytest.mark.slow] if is_slow(name, way) else [])
    for name in CASES
    for way in WAYS
]


def compiled(function: Callable[..., Any], way: str, changing: tuple[int, ...], **options: Any) -> Any:
    """``function`` compiled by a backend that refuses to fall back, and the backend."""
    backend = DebugBackend(**{"fallback": False, "session_options": {"intra_op_num_threads": 1}, **options})
    inner = torch.compile(function, backend=backend, dynamic=True if way == "dynamic" else None)
    if way != "mark_dynamic":
        return inner, backend

    def marked(*args: Any) -> Any:
        for arg in args:
            torch._dynamo.mark_dynamic(arg, list(changing))
        return inner(*args)

    return marked, backend


def results(function: Callable[..., Any], parameters: list[Tensor], args: Args) -> list[Tensor]:
    """Outputs and gradients of a call."""
    own = [arg.clone().requires_grad_(arg.is_floating_point()) for arg in args]
    outputs = tree_leaves(function(*own))
    wanted = [arg for arg in own if arg.requires_grad] + parameters
    given = [torch.linspace(-1, 1, output.numel()).reshape(output.shape) for output in outputs]
    return [*outputs, *torch.autograd.grad(outputs, wanted, given, allow_unused=True)]


def runs(case: Case, way: str, **options: Any) -> Iterator[DebugBackend]:
    """Compares a case with eager at every size, and yields the backend after each."""
    model = case.make()
    parameters = list(model.parameters()) if isinstance(model, nn.Module) else []
    function, backend = compiled(model, way, case.changing, **options)
    for sizes in case.sizes:
        args = case.arguments(*sizes)
        got, expected = (results(f, parameters, args) for f in (function, model))
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
        yield backend


@pytest.mark.parametrize(("name", "way"), EVERY)
def test_one_session_serves_every_size_forward_and_backward(name: str, way: str) -> None:
    """Of automatic dynamic shapes the first ones are static, and the second ones make the graphs for all others."""
    graphs = 4 if way == "automatic" else 2
    for run, backend in enumerate(runs(CASES[name], way)):
        assert len(backend.graphs) == (graphs if run else 2)
    for graph in backend.graphs:
        onnx.checker.check_model(graph.onnx_model, full_check=True)
        onnx.shape_inference.infer_shapes(graph.onnx_model, check_type=True, strict_mode=True)


def dims(value: onnx.ValueInfoProto) -> list[Any]:
    return [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]


def test_sizes_are_named_after_torchs_symbols_and_shared() -> None:
    function, backend = compiled(lambda x, y: (torch.cat([x, y], 1) * 2, x.repeat(2, 1)), "dynamic", ())
    function(torch.randn(3, 5), torch.randn(3, 7))
    (graph,) = backend.graphs
    inputs = {value.name: dims(value) for value in graph.onnx_model.graph.input}
    (rows, first), (same, second) = [shape for shape in inputs.values() if shape]
    assert rows == same
    assert len({rows, first, second}) == 3
    assert all(symbol.startswith("s") for symbol in (rows, first, second))
    joined, repeated = [dims(value) for value in graph.onnx_model.graph.output]
    assert (joined[0], repeated) == (rows, [f"2*{rows}", first])
    assert joined[1] in (f"{first} + {second}", f"{second} + {first}")


def test_the_session_of_a_program_stays_while_sizes_change() -> None:
    function, backend = compiled(lambda x: x.softmax(1).sum(0), "dynamic", ())
    sessions = set()
    for sizes in ((3, 5), (8, 13), (2, 100)):
        x = torch.randn(sizes)
        torch.testing.assert_close(function(x), x.softmax(1).sum(0))
        sessions.add(id(backend.graphs[-1].program._session))
    assert len(backend.graphs) == len(sessions) == 1


def test_sizes_of_one_and_none_are_right_in_graphs_of_their_own() -> None:
    function, _ = compiled(CASES["mlp"].make(), "dynamic", ())
    model = function._orig_mod
    for sizes in ((1, 9), (4, 1), (0, 5)):
        (x,) = hidden(*sizes)
        torch.testing.assert_close(function(x), model(x))


def test_sizes_that_become_none_inside_the_graph() -> None:
    function, _ = compiled(lambda x: (x[2:].mean(0), x[2:].sum(), x[2:].reshape(-1, 2, 2) * 2), "dynamic", ())
    for rows in (5, 3, 2):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(
            function(x), (x[2:].mean(0), x[2:].sum(), x[2:].reshape(-1, 2, 2) * 2), equal_nan=True
        )


FLOATS: dict[str, Callable[[Tensor, float], Any]] = {
    "product": lambda x, number: x * number + number / x.shape[0],
    "root": lambda x, number: x * math.sqrt(number) - number / 3,
    "returned": lambda x, number: (x * 2, number * 2 + x.shape[0], x.shape[1] / 3, x.shape[0] > 3),
}


@pytest.mark.parametrize("name", FLOATS)
def test_numbers_among_arguments_and_results(name: str) -> None:
    function, _ = compiled(FLOATS[name], "dynamic", ())
    for rows, number in ((3, 1.5), (4, 0.1), (7, 1e-9)):
        x = torch.randn(rows, 5)
        got, expected = function(x, number), FLOATS[name](x, number)
        torch.testing.assert_close(got, expected)
        assert [type(each) for each in tree_leaves(got)] == [type(each) for each in tree_leaves(expected)]


def replaced(x: Tensor, i: int) -> Tensor:
    y = x * 1
    y[i] = 7.0
    y[:, i] += x[:, 0]
    y[i:] *= 2
    return y


INDEXED: dict[str, Callable[[Tensor, int], Tensor]] = {
    "replaced": replaced,
    "select_scatter": lambda x, i: torch.select_scatter(x, x[0] * 3, 0, i),
    "slice_scatter": lambda x, i: torch.slice_scatter(x, x[i:] * 2, 0, i),
    "slice from behind": lambda x, i: torch.slice_scatter(x, x[-2:] * i, 0, -2),
}


@pytest.mark.parametrize("name", INDEXED)
def test_an_index_that_changes_may_count_from_the_end(name: str) -> None:
    function, _ = compiled(INDEXED[name], "dynamic", ())
    for rows, i in ((4, 2), (4, 1), (5, -1), (4, -2), (6, -4), (4, 3)):
        x, like = (torch.arange(1.0, rows * 6 + 1).view(rows, 6).requires_grad_() for _ in range(2))
        got, expected = function(x, i), INDEXED[name](like, i)
        torch.testing.assert_close(got, expected)
        got.sin().sum().backward(), expected.sin().sum().backward()
        torch.testing.assert_close(x.grad, like.grad)


LARGE: dict[str, Callable[[int], Any]] = {
    "square": lambda k: k * k,
    "remainder": lambda k: (k * 6364136223846793005 + 1) % 1000003,
    "shifted": lambda k: (k << 40, k * k // (1 << 45), -k // 3, -k % 3),
}


@pytest.mark.parametrize("name", LARGE)
def test_numbers_that_are_returned_know_no_largest_integer(name: str) -> None:
    def model(x: Tensor, k: int) -> Any:
        return x * 2, LARGE[name](k)

    function, _ = compiled(model, "dynamic", ())
    for k in (5, 7, 2**40 + 1, 2**62):
        assert function(torch.ones(2), k)[1] == LARGE[name](k)


def test_recorded_runs_hold_the_numbers() -> None:
    function, backend = compiled(lambda x, n: x[: n // 2] * n, "dynamic", (), max_runs=2)
    for n in (4, 7):
        function(torch.randn(9), n)
    (graph,) = backend.graphs
    assert [
        [argument for argument in run.inputs if isinstance(argument, int) and argument != 9] for run in graph.runs
    ] == [[4], [7]]
