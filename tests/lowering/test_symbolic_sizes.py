"""Graphs with symbolic sizes: one program serves every size."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import onnx
import onnx_ir as ir
import pytest
import torch
from op_calls import CPU
from torch import Tensor, fx
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.nn import functional as F
from torch.utils._pytree import tree_map

import dort_compare
from dort_compare.errors import UnsupportedGraphError
from dort_compare.lowering import lower
from dort_compare.runtime import Program, newest_opset
from dort_compare.runtime.opsets import OLDEST_OPSET


def computed(value: Any) -> Any:
    """Values that are no views of the graph's input: AOTAutograd makes those anew from their strides."""
    return tree_map(lambda tensor: tensor * 1, value)


def regular(x: Tensor) -> Tensor:
    """Symmetric positive definite matrices of symbolic size."""
    places = torch.arange(x.shape[1])
    return x @ x.transpose(1, 2) / x.shape[1] + (places == places[:, None]).to(x.dtype)


MODELS: dict[str, Callable[[Tensor], Any]] = {
    "view": lambda x: x.view(x.shape[0] * x.shape[1], 4).relu(),
    "view of two sizes": lambda x: x.relu().view(x.shape[0], x.shape[1], 2, 2).transpose(1, 2),
    "expand": lambda x: x[:, :1].expand(-1, x.shape[1], -1) + x.new_ones(x.shape[1], 1).expand(x.shape[1], 4),
    "slice": lambda x: (x[1:, : x.shape[1] // 2], x[:, -2:], x[:-1], x[::2], x[:, 1 : x.shape[1] - 1 : 3]),
    "slice by a size": lambda x: (x[:, :: x.shape[0] - 3], x[:, x.shape[0] - 3 : -1], x[:, -x.shape[0] :]),
    "cat": lambda x: torch.cat([x, x[:, :2], x.new_zeros(x.shape[0], x.shape[1] - 1, 4)], 1),
    "arange": lambda x: (
        torch.arange(x.shape[1]) * torch.arange(3, x.shape[0] + 5)[:, None][:1],
        torch.arange(0, x.shape[1], 2, dtype=torch.float32),
        torch.arange(x.shape[1], 0, -1),
        torch.arange(0, 20, x.shape[0]),
        torch.arange(x.shape[0] / 3, x.shape[1], 0.5),
    ),
    "index by a range": lambda x: (
        x.index_select(1, torch.arange(x.shape[1] - 1, -1, -1)),
        x[:, torch.arange(-x.shape[1], -1, 2)],
        x[:, torch.arange(x.shape[0] - 3, x.shape[0])],
    ),
    "variance": lambda x: (
        x.var(1),
        x.var((0, 1)),
        x.var(0, correction=0),
        torch.var_mean(x[:1], (0, 1), correction=2),
    ),
    "sum": lambda x: (x.sum((0, 1)), x.mean(1, keepdim=True), x.cumsum(1), x.amax(0)),
    "index": lambda x: (x[torch.arange(x.shape[0]), -1], x[:, torch.arange(x.shape[1] - 1)], x[-1]),
    "split": lambda x: (*x.split([2, x.shape[1] - 2], 1), *x.split(x.shape[1] - 3, 1), *x.chunk(2, 1)),
    "mask": lambda x: x.new_ones(x.shape[1], x.shape[1], dtype=torch.bool).tril().masked_fill(x[0, :, :1] > 0, False),
    "select and stack": lambda x: torch.stack([x.select(1, 0), x.select(1, -1)]).softmax(-1),
    "band": lambda x: (x @ x.transpose(1, 2)).tril(x.shape[0] - 6).triu(1 - x.shape[0] // 2),
    "numbers as operands": lambda x: (
        x * x.shape[1] / x.shape[0] + 1 / math.sqrt(x.shape[1]) - x.numel(),
        x > 1 / x.shape[1],
        torch.add(x, x, alpha=x.shape[0] / 7),
        x.new_full((x.shape[0],), x.shape[1] / 3) + torch.arange(x.shape[0]) * x.shape[1],
        (x.half() * (1 / x.shape[1])).float(),
        x * x.stride(0) + x.stride(-1),
    ),
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
    "factorizations": lambda x: (
        *torch.linalg.cholesky_ex(regular(x)),
        *torch.linalg.lu_factor_ex(regular(x)),
        *torch.linalg.lu(regular(x)),
        *torch.linalg.lu(x),
        *torch.linalg.qr(x.transpose(1, 2)),
        *torch.linalg.qr(x, mode="complete"),
        *torch.lu_unpack(*torch.linalg.lu_factor_ex(x)[:2]),
    ),
    "systems": lambda x: (
        *torch.linalg.inv_ex(regular(x)),
        torch.linalg.solve_ex(regular(x), x)[0],
        torch.linalg.solve_ex(regular(x)[0], x[..., 0].t(), left=True)[0],
        torch.linalg.solve_triangular(regular(x), x, upper=True),
        torch.linalg.solve_triangular(regular(x)[0], x, upper=False),
        torch.cholesky_solve(x, regular(x)),
        torch.linalg.det(regular(x)),
        torch.linalg.slogdet(regular(x)),
        torch.linalg.matrix_exp(regular(x) / 4),
    ),
    "transforms": lambda x: (
        torch.fft.irfft2(torch.complex(*2 * [x.view(x.shape[0], x.shape[1], 2, 2)]), s=(2, 2)),
        torch.view_as_real(torch.fft.rfft2(x.view(x.shape[0], x.shape[1], 2, 2))),
        torch.view_as_real(torch.fft.fft2(x.view(x.shape[0], x.shape[1], 2, 2))),
    ),
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(*3 * [x[:, None]], is_causal=True),
}


@pytest.mark.parametrize("opset", [pytest.param(OLDEST_OPSET, marks=pytest.mark.slow), newest_opset()])
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
    "slice from the middle": lambda x: x[:, x.shape[1] // 2 :] * 2,
    "slice from the end": lambda x: x[:, -3:-1] * 2,
    "slice from beyond the start": lambda x: x[:, -40:] * 2,
    "slice with a step": lambda x: x[:, 1::3] * 2 + x[:, 1 : x.shape[1] - 1 : 3].sum(),
    "slice by a size": lambda x: x[:, :: x.shape[1] - 4] * 2,
    "slice of nothing": lambda x: x[:, 50:].sum(1) + x[:, :0].sum(1) + x[:, 50::7].sum(1),
    "select": lambda x: x[:, -1] * x.select(1, x.shape[1] - 2) + x[:, 0],
    "chunk": lambda x: torch.cat(x.chunk(2, 1)[::-1], 1) * x,
    "view": lambda x: (x * 2).view(x.shape[0] * x.shape[1], 2, 2).tanh(),
    "variance": lambda x: x.var(1),
    "sizes as operands": lambda x: x * x.shape[1] / math.sqrt(x.shape[0]),
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


PARAMETERS: dict[str, Callable[[Tensor], Tensor]] = {
    "celu": lambda x: F.celu(x, 0.3 * x.shape[0]),
    "elu": lambda x: torch.ops.aten.elu(x, x.shape[0], x.shape[1], 0.5),
    "elu in place": lambda x: F.elu((x * 2), x.shape[0] / 2, inplace=True),
    "leaky_relu": lambda x: F.leaky_relu(x, 1 / x.shape[0]),
    "pow": lambda x: (x.detach() ** 2 + 1) ** x.shape[0] + x,
    "norm": lambda x: x.detach().norm(x.shape[0] / 7, dim=-1, keepdim=True) + x,
    "conv2d": lambda x: F.conv2d(x.detach()[:, None], KERNEL, padding=(x.shape[1] // 3, x.shape[0])).sum() * x,
    "conv1d in half precision": lambda x: (
        F.conv1d(x.detach().bfloat16(), x.new_ones(1, x.shape[1], 3).bfloat16(), padding=x.shape[0]).float().sum() * x
    ),
}
KERNEL = torch.arange(6.0).view(1, 1, 2, 3)


@pytest.mark.parametrize("name", PARAMETERS)
def test_sizes_may_be_parameters(name: str) -> None:
    backend = dort_compare.DebugBackend(providers=["cpu"], fallback=False)
    torch._dynamo.reset()
    compiled = torch.compile(PARAMETERS[name], backend=backend, dynamic=True)
    for shape in ((5, 7, 4), (8, 12, 4), (9, 33, 4)):
        x = torch.randn(shape, requires_grad=True)
        output, expected = compiled(x), PARAMETERS[name](x)
        torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-4)
        gradients = (torch.autograd.grad(each.square().sum(), x) for each in (output, expected))
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
    assert any(graph_input.dtype is None for graph_input in backend.graphs[0].signature.inputs)


@pytest.mark.parametrize("options", [{"stride": 2}, {"dilation": 2}, {"padding": 2}])
def test_a_convolution_by_what_is_an_attribute_in_onnx_is_refused(options: dict[str, int], said_by: Any) -> None:
    def strided(x: Tensor) -> Tensor:
        return F.conv1d(x, x.new_ones(1, 7, 3), **{name: x.shape[0] - value for name, value in options.items()})

    torch._dynamo.reset()
    x = torch.randn(4, 7, 30, requires_grad=True)
    compiled = torch.compile(strided, backend=dort_compare.DebugBackend(providers=["cpu"]), dynamic=True)
    compiled(x).sum().backward()
    assert "a convolution by symbolic strides, dilations or padding" in " ".join(said_by("dort_compare"))


def test_a_convolution_in_a_symbolic_number_of_groups_is_refused(said_by: Any) -> None:
    def grouped(x: Tensor, weight: Tensor) -> Tensor:
        return F.conv1d(x, weight, groups=x.shape[1])

    torch._dynamo.reset()
    x, weight = torch.randn(2, 6, 9), torch.randn(6, 1, 3)
    compiled = torch.compile(grouped, backend=dort_compare.DebugBackend(providers=["cpu"]), dynamic=True)
    torch.testing.assert_close(compiled(x, weight), grouped(x, weight))
    assert "a convolution in a symbolic number of groups" in " ".join(said_by("dort_compare"))


NUMBERS: dict[str, tuple[Any, ...]] = {
    "n": (-7, -6, -1, 1, 2, 3, 8, 30),
    "m": (2, -3, 5, 1, 7, 3, -8, 4),
    "x": (0.5, -1.5, 2.5, 1e9, 3.0, -0.75, 1 / 3, 2.0**40 + 0.5),
    "y": (2.0, 0.25, 3.0, 7.5, 1e-3, 0.75, 3.0, 1.0),
    "b": (False, False, True, True, False, True, True, False),
    "c": (False, True, False, True, True, True, False, False),
}
ARITHMETIC = (operator.add, operator.sub, operator.mul, torch.sym_max, torch.sym_min)
COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
OPERATIONS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    *itertools.product(ARITHMETIC, [("n", 3), (3, "n"), ("n", "m"), ("n", "x"), ("x", "y"), ("x", 2), (0.5, "n")]),
    *itertools.product(COMPARISONS, [("n", "m"), ("n", 3), ("n", "x"), ("x", "y"), ("x", 3)]),
    *itertools.product((operator.neg, operator.abs, operator.pos), [("n",), ("x",)]),
    *itertools.product((operator.floordiv, operator.mod), [("n", 3), ("n", -3), (7, "n"), ("n", "m")]),
    (operator.mod, ("x", "y")),
    (operator.mod, ("y", -0.3)),
    *itertools.product((operator.truediv,), [("n", "m"), ("n", 3), (1, "n"), ("x", "y"), ("x", 3)]),
    *itertools.product((operator.pow,), [("n", 0), ("n", 1), ("n", 5), ("n", 12), ("y", 0.5), ("y", "y"), ("x", 2.0)]),
    (operator.lshift, ("n", 3)),
    (operator.rshift, ("n", 2)),
    *itertools.product((operator.and_, operator.or_), [("n", "m"), ("n", 12), ("b", "c")]),
    (operator.xor, ("n", "m")),
    (operator.eq, ("b", "c")),
    (torch.sym_not, ("b",)),
    (torch.sym_float, ("n",)),
    (torch.sym_float, ("x",)),
    (torch.sym_sum, (["n", "m", "n", 4],)),
    (torch.sym_ite, ("b", "n", "m")),
    (torch.sym_ite, ("b", "x", "y")),
    *itertools.product((math.floor, math.ceil, math.trunc, round), [("x",), ("y",)]),
    (torch._sym_sqrt, ("y",)),
    (torch._sym_sin, ("y",)),
    (torch._sym_cos, ("y",)),
    (torch._sym_tanh, ("y",)),
]


def program_of(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Program:
    """A program of one function of symbolic numbers, which ``arguments`` name by the keys of NUMBERS, and constants."""
    graph, env = fx.Graph(), ShapeEnv()
    nodes: dict[str, fx.Node] = {}
    for name, values in NUMBERS.items():
        nodes[name] = graph.placeholder(name)
        nodes[name].meta["val"] = getattr(env, f"create_unbacked_sym{type(values[0]).__name__}")()
    node = graph.call_function(function, tree_map(lambda a: nodes.get(a, a), arguments))
    node.meta["val"] = function(*tree_map(lambda a: nodes[a].meta["val"] if a in nodes else a, arguments))
    graph.output((node,))
    lowered = lower(fx.GraphModule({}, graph), "inference", OLDEST_OPSET)
    onnx.checker.check_model(ir.to_proto(lowered.model), full_check=True)
    return Program(lowered.model, lowered.signature, CPU)


@pytest.mark.parametrize(("function", "arguments"), OPERATIONS, ids=lambda each: getattr(each, "__name__", str(each)))
def test_numbers_follow_python(function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    program = program_of(function, arguments)
    for values in zip(*NUMBERS.values(), strict=True):
        given = dict(zip(NUMBERS, values, strict=True))
        expected = function(*tree_map(lambda a, given=given: given.get(a, a), arguments))
        (got,) = program(*values)
        assert type(got) is type(expected)
        assert got == pytest.approx(expected, rel=1e-15, abs=0)


def test_powers_of_a_symbolic_exponent_are_exact() -> None:
    graph, env = fx.Graph(), ShapeEnv()
    nodes = [graph.placeholder("n"), graph.placeholder("m")]
    for node in nodes:
        node.meta["val"] = env.create_unbacked_symint()
        torch._check(node.meta["val"] >= 0)
    results = [graph.call_function(f, tuple(nodes)) for f in (operator.pow, operator.lshift)]
    for node in results:
        node.meta["val"] = node.target(*(operand.meta["val"] for operand in nodes))
    graph.output(tuple(results))
    lowered = lower(fx.GraphModule({}, graph), "inference", OLDEST_OPSET)
    program = Program(lowered.model, lowered.signature, CPU)
    for n, m in ((3, 39), (7, 22), (1, 62), (0, 0), (5, 1), (10, 18)):
        assert program(n, m) == [n**m, n << m]


def test_numbers_read_from_tensors_are_exact() -> None:
    for value in (torch.tensor(0.1), torch.tensor([2**60 + 1]), torch.tensor([[True]]), torch.tensor(0.1).half()):
        graph = fx.Graph()
        x = graph.placeholder("x")
        x.meta["val"] = torch._subclasses.fake_tensor.FakeTensorMode().from_tensor(value)
        number = graph.call_function(torch.ops.aten._local_scalar_dense.default, (x,))
        number.meta["val"] = value.item()
        graph.output((number,))
        lowered = lower(fx.GraphModule({}, graph), "inference", OLDEST_OPSET)
        assert Program(lowered.model, lowered.signature, CPU)(value) == [value.item()]


def test_decimal_rounding_is_refused() -> None:
    with pytest.raises(UnsupportedGraphError, match="rounding to decimal digits"):
        program_of(round, ("x", 1))


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


def test_an_expansion_to_nothing_keeps_the_other_sizes() -> None:
    def expanded(x: Tensor) -> Tensor:
        return x[None].expand(x.shape[0], -1, -1) * 1

    x = torch.zeros(0, 4)
    assert torch.compile(expanded, backend="dort", dynamic=True)(x).shape == expanded(x).shape


def test_a_correction_of_a_variance_may_be_a_size() -> None:
    def corrected(x: Tensor) -> tuple[Tensor, ...]:
        return x.var(0, correction=x.shape[1] // 2), *torch.std_mean(x[:4], 0, correction=x.shape[1] // 3)

    x = torch.randn(9, 5)
    compiled = torch.compile(corrected, backend="dort", dynamic=True, options={"fallback": False})
    torch.testing.assert_close(compiled(x), corrected(x))
