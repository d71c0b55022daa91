"""How outputs that are views are made of what they are views of."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch import fx

from dort_compare.views import view_of

aten = torch.ops.aten


class Graph:
    """An FX graph whose nodes hold what they compute of real operands, as ``meta["val"]``."""

    def __init__(self) -> None:
        self.graph = fx.Graph()

    def input(self, name: str, value: Any) -> fx.Node:
        node = self.graph.placeholder(name)
        node.meta["val"] = value
        return node

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        node = self.graph.call_function(target, args, kwargs)
        operands, named = fx.map_arg((args, kwargs), lambda arg: arg.meta["val"])
        node.meta["val"] = target(*operands, **named)
        return node


@pytest.fixture
def graph() -> Graph:
    return Graph()


def check(node: fx.Node, *names: str, **operands: Any) -> None:
    """The view that ``node`` is, of ``names``, is made anew of other operands and shares their memory."""
    view = view_of(node)
    assert view is not None
    assert view.operands == names
    made = view.make(*(operands[name] for name in names))
    assert torch.equal(made, node.meta["val"] + 100)
    assert made.stride() == node.meta["val"].stride()
    assert made.untyped_storage().data_ptr() == operands["x"].untyped_storage().data_ptr()


def test_one_view_after_another(graph: Graph) -> None:
    x = graph.input("x", torch.arange(12.0).reshape(3, 4))
    parts = graph.call(aten.split.Tensor, graph.call(aten.t.default, x), 2)
    part = graph.call(aten.unsqueeze.default, graph.call(operator.getitem, parts, 1), dim=1)
    check(part, "x", x=x.meta["val"] + 100)


def test_a_view_whose_sizes_are_computed(graph: Graph) -> None:
    n = graph.input("n", 2)
    x = graph.input("x", torch.arange(12.0))
    shape = [graph.call(operator.add, n, 1), graph.call(operator.mul, n, n)]
    node = graph.call(aten.view.default, x, shape)
    check(node, "n", "x", n=2, x=x.meta["val"] + 100)


def test_a_view_whose_sizes_are_its_own(graph: Graph) -> None:
    x = graph.input("x", torch.arange(12.0).reshape(3, 4))
    flat = graph.call(aten.view.default, x, [graph.call(aten.sym_size.int, x, 1), 3])
    check(flat, "x", x=x.meta["val"] + 100)


def test_steps_that_read_more_than_the_step_before(graph: Graph) -> None:
    n = graph.input("n", 2)
    more = graph.call(operator.add, n, 1)
    squared, product = view_of(graph.call(operator.mul, n, n)), view_of(graph.call(operator.mul, more, n))
    assert squared is not None
    assert product is not None
    assert (squared.make(3), product.make(3)) == (9, 12)


def test_an_input_and_a_computed_value_are_no_views(graph: Graph) -> None:
    x = graph.input("x", torch.ones(2))
    assert view_of(x) is None
    assert view_of(graph.call(aten.neg.default, x)) is None


def test_a_view_of_a_computed_value_names_it(graph: Graph) -> None:
    x = graph.input("x", torch.ones(2, 3))
    computed = graph.call(aten.neg.default, x)
    view = view_of(graph.call(aten.t.default, computed))
    assert view is not None
    assert view.base is computed
