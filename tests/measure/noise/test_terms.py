"""How many terms make an element of a sum, a running sum, a product or a convolution, by torch's shapes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from of_function import Of
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from dort_compare import compare
from dort_compare.measure.noise.terms import terms
from dort_compare.trace import Replay

aten = torch.ops.aten
BACKWARD = ([3], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True])
DEPTHWISE = ([4], [1, 1], [1, 1], [1, 1], False, [0, 0], 4, [True, True, True])
X, WEIGHT, GRAD = (2, 4, 8, 8), (3, 4, 3, 3), (2, 3, 8, 8)


def traced(function: Callable[..., Any], *shapes: tuple[int, ...]) -> tuple[fx.Node, Replay, Tensor]:
    """The last call of a function of tensors, its replay and its result."""
    inputs = [torch.randn(shape, generator=torch.Generator().manual_seed(0)) for shape in shapes]
    graph = make_fx(function)(*inputs).graph
    node = graph.output_node().args[0]
    assert isinstance(node, fx.Node)
    names = [each.name for each in graph.find_nodes(op="placeholder")]
    return node, Replay(dict(zip(names, inputs, strict=True))), function(*inputs)


@pytest.mark.parametrize(
    ("function", "shapes", "expected"),
    [
        (lambda x: x.sum(0), [(30, 5)], 30),
        (lambda x: x * 2, [(30, 5)], 1),
        (lambda x: x.cumsum(1), [(30, 5)], 5),
        (lambda g, x: aten.replication_pad1d_backward(g, x, [20, 3]), [(1, 2, 28), (1, 2, 5)], 21),
        (lambda g, x: aten.replication_pad2d_backward(g, x, [9, 0, 4, 0]), [(2, 8, 13), (2, 4, 4)], 50),
        (torch.mm, [(64, 100), (100, 70)], 100),
        (torch.addmm, [(70,), (64, 100), (100, 70)], 100),
        (torch.bmm, [(6, 64, 100), (6, 100, 70)], 100),
        (torch.mm, [(64, 5000), (5000, 70)], 256),
        (torch.mm, [(1, 5000), (5000, 1)], 5000),
        (lambda x, w: aten.convolution(x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1), [X, WEIGHT], 4 * 9),
        (lambda g, x, w: aten.convolution_backward(g, x, w, *BACKWARD)[0], [GRAD, X, WEIGHT], 3 * 9),
        (lambda g, x, w: aten.convolution_backward(g, x, w, *BACKWARD)[1], [GRAD, X, WEIGHT], 2 * 8 * 8),
        (lambda g, x, w: aten.convolution_backward(g, x, w, *BACKWARD)[2], [GRAD, X, WEIGHT], 4 * 2 * 8 * 8 // 3),
        (lambda g, x, w: aten.convolution_backward(g, x, w, *DEPTHWISE)[1], [X, X, (4, 1, 3, 3)], 2 * 8 * 8),
    ],
)
def test_terms(function: Callable[..., Any], shapes: list[tuple[int, ...]], expected: int) -> None:
    node, replay, result = traced(function, *shapes)
    assert (node.target is operator.getitem) == (shapes[0] in (GRAD, X) and len(shapes) == 3)
    assert terms(replay, node, result) == expected


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
@pytest.mark.parametrize("dynamic", [None, True])
def test_products_whose_sizes_are_read_off_the_data_are_counted_as_they_are(dynamic: bool | None) -> None:
    """Nearly equal terms, so that the floor is asked for their number."""
    x, weight = torch.rand(9, 3000) + 1, torch.rand(3000, 5) + 1
    report = compare(Of(lambda x, w: x[x[:, 0] > 1.3] @ w), (x, weight), dynamic=dynamic)
    assert report.verdict == "agree", str(report)


def test_sizes_that_were_traced_as_symbols_are_those_of_the_values() -> None:
    """What is read off them binds no symbol: the graph would not fit other sizes any more."""
    graph = make_fx(torch.mm, tracing_mode="symbolic")(torch.rand(6, 7), torch.rand(7, 5)).graph
    (node,) = graph.find_nodes(op="call_function", target=aten.mm.default)
    a, b = torch.rand(64, 100), torch.rand(100, 70)
    assert terms(Replay({node.args[0].name: a, node.args[1].name: b}), node, a @ b) == 100
    assert not isinstance(node.meta["val"].shape[0].node.maybe_as_int(), int)
