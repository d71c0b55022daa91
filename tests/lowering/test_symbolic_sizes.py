"""Graphs with symbolic sizes: one program serves every size."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from op_calls import CPU
from torch import Tensor, fx
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._pytree import tree_map

import dort_compare
from dort_compare.lowering import lower
from dort_compare.runtime import Program, newest_opset
from dort_compare.runtime.providers import OLDEST_OPSET


def computed(value: Any) -> Any:
    """Values that are no views of the graph's input: AOTAutograd makes those anew from their strides."""
    return tree_map(lambda tensor: tensor * 1, value)


MODELS: dict[str, Callable[[Tensor], Any]] = {
    "view": lambda x: x.view(x.shape[0] * x.shape[1], 4).relu(),
    "view of two sizes": lambda x: x.relu().view(x.shape[0], x.shape[1], 2, 2).transpose(1, 2),
    "expand": lambda x: x[:, :1].expand(-1, x.shape[1], -1) + x.new_ones(x.shape[1], 1).expand(x.shape[1], 4),
    "slice": lambda x: (x[1:, : x.shape[1] // 2], x[:, -2:], x[:-1], x[::2], x[:, 1 : x.shape[1] - 1 : 3]),
    "cat": lambda x: torch.cat([x, x[:, :2], x.new_zeros(x.shape[0], x.shape[1] - 1, 4)], 1),
    "arange": lambda x: (
        torch.arange(x.shape[1]) * torch.arange(3, x.shape[0] + 5)[:, None][:1],
        torch.arange(0, x.shape[1], 2, dtype=torch.float32),
        torch.arange(x.shape[1], 0, -1),
    ),
    "sum": lambda x: (x.sum((0, 1)), x.mean(1, keepdim=True), x.cumsum(1), x.amax(0)),
    "index": lambda x: (x[torch.arange(x.shape[0]), -1], x[:, torch.arange(x.shape[1] - 1)], x[-1]),
    "split": lambda x: x.split([2, x.shape[1] - 2], 1),
    "mask": lambda x: x.new_ones(x.shape[1], x.shape[1], dtype=torch.bool).tril().masked_fill(x[0, :, :1] > 0, False),
    "select and stack": lambda x: torch.stack([x.select(1, 0), x.select(1, -1)]).softmax(-1),
    "full": lambda x: torch.full((x.shape[1], x.shape[0] // 2), x.shape[1]) + torch.zeros_like(x)[0, :, :1],
    "matmul": lambda x: x @ x.transpose(1, 2),
    "extremes": lambda x: (*x.max(1), x.argmin(0), *x.topk(2, 1), *x.sort(0), x.median(1)[0], x.std(1)),
    "roll and flip": lambda x: (x.roll(2, 1), x.flip(1), x.roll(-3), x.repeat(1, 2, 1)),
    "gather": lambda x: (x.gather(1, x.argmax(1, keepdim=True)), x.index_select(1, torch.arange(x.shape[1] - 1))),
    "index_put": lambda x: (
        x.index_put((torch.arange(x.shape[0]), torch.tensor([1])), x.new_zeros(4)),
        torch.ops.aten.index_put(x, [None, torch.tensor([1, 1])], x.new_ones(4), True),
        torch.ops.aten.index_put(x, [torch.tensor([1, 1]), None, torch.tensor([2, 2])], x.new_ones(()), True),
    ),
    "slices replaced": lambda x: (x.select_scatter(x[0], 0, -1), x.slice_scatter(x[:, 2:] * 2, 1, 2)),
    "index_add": lambda x: x.index_add(1, torch.arange(x.shape[1]), x).index_copy(0, torch.tensor([1]), x[:1]),
    "unfold": lambda x: x.relu().unfold(1, 3, 2),
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(*3 * [x[:, None]], is_causal=True),
}


@pytest.mark.parametrize("opset", [OLDEST_OPSET, newest_opset()])
@pytest.mark.parametrize("name", MODELS)
def test_one_program_serves_every_size(name: str, opset: int) -> None:
    backend = dort_compare.DebugBackend(providers=["cpu"], fallback=False, target_opset=opset)
    torch._dynamo.reset()
    model = lambda x: computed(MODELS[name](x))  # noqa: E731
    compiled = torch.compile(model, backend=backend, dynamic=True)
    with torch.no_grad():
        for shape in ((5, 7, 4), (8, 12, 4), (6, 9, 4), (9, 33, 4)):
            x = torch.randn(shape)
            torch.testing.assert_close(compiled(x), model(x))
    assert len(backend.graphs) == 1
    assert any(graph_input.dtype is None for graph_input in backend.graphs[0].signature.inputs)


def test_views_of_the_input_with_symbolic_bounds_are_returned() -> None:
    backend = dort_compare.DebugBackend(providers=["cpu"], fallback=False)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x[1:, : x.shape[1] // 2], backend=backend, dynamic=True)
    x = torch.randn(5, 8, 4)
    assert torch.equal(compiled(x), x[1:, :4])


GRADIENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "slice": lambda x: x[:, 1:] * 2,
    "slice to the middle": lambda x: x[:, : x.shape[1] // 2] * 2,
    "expand": lambda x: x[:, :1].expand(-1, x.shape[1], -1) * x,
    "softmax": lambda x: x.sum(-1).softmax(1),
    "matmul": lambda x: (x @ x.transpose(1, 2)).sum(-1),
    "max": lambda x: x.max(1)[0] * 2,
    "sort": lambda x: x.sort(1)[0] * 2,
    "index": lambda x: x[:, torch.tensor([0, 1, 1])] * 2,
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_serve_every_size(name: str) -> None:
    function = GRADIENTS[name]
    backend = dort_compare.DebugBackend(providers=["cpu"], fallback=False)
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=backend, dynamic=True)
    for shape in ((3, 6, 4), (2, 7, 4), (9, 33, 4)):
        x = torch.randn(shape, requires_grad=True)
        output, expected = compiled(x), function(x)
        grad = torch.randn_like(expected)
        torch.testing.assert_close(torch.autograd.grad(output, x, grad), torch.autograd.grad(expected, x, grad))
    assert len(backend.graphs) == 2


def size_program(function: Callable[..., Any], *constants: Any) -> Program:
    """A program of one builtin on a symbolic size and constants."""
    graph = fx.Graph()
    n = graph.placeholder("n")
    env = ShapeEnv()
    n.meta["val"] = env.create_unbacked_symint()
    constants = tuple(n if constant == "n" else constant for constant in constants)
    node = graph.call_function(function, constants)
    node.meta["val"] = function(*(n.meta["val"] if c is n else c for c in constants))
    graph.output((node,))
    lowered = lower(fx.GraphModule({}, graph), "inference", newest_opset())
    return Program(lowered.model, lowered.signature, CPU)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (operator.add, ("n", 3)),
        (operator.sub, (3, "n")),
        (operator.mul, ("n", -2)),
        (operator.neg, ("n",)),
        (operator.floordiv, ("n", 3)),
        (operator.floordiv, ("n", -3)),
        (operator.floordiv, (7, "n")),
        (operator.mod, ("n", 3)),
        (operator.mod, ("n", -3)),
    ],
    ids=str,
)
def test_sizes_follow_python(function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    program = size_program(function, *arguments)
    for n in (-7, -6, -1, 1, 2, 3, 8, 2**40 + 1):
        assert program(n) == [function(*(n if argument == "n" else argument for argument in arguments))]


def test_sym_size_reads_symbolic_and_fixed_sizes() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    mode = torch._subclasses.fake_tensor.FakeTensorMode(shape_env=ShapeEnv())
    x.meta["val"] = mode.from_tensor(torch.zeros(5, 1), source=ConstantSource("x"))
    nodes = [graph.call_function(torch.ops.aten.sym_size.int, (x, dim)) for dim in (0, -2, 1)]
    for node, size in zip(nodes, (x.meta["val"].shape[0],) * 2 + (1,), strict=True):
        node.meta["val"] = size
    graph.output(tuple(nodes))
    lowered = lower(fx.GraphModule({}, graph), "inference", newest_opset())
    program = Program(lowered.model, lowered.signature, CPU)
    assert program(torch.zeros(5, 1)) == [5, 5, 1]
    assert program(torch.zeros(8, 1)) == [8, 8, 1]
