"""The calls around pieces: by code that fx makes, with what it writes otherwise than it means."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch import fx

from dort_compare.backends.pieces import boxed_graph
from dort_compare.errors import CheckError
from dort_compare.generated import made_code

aten = torch.ops.aten


def graph_of(*calls: tuple[Any, tuple[Any, ...]]) -> fx.GraphModule:
    """A graph of one input, for which None stands in the arguments; it returns what the last call gives."""
    graph = fx.Graph()
    value = taken = graph.placeholder("taken")
    for target, arguments in calls:
        value = graph.call_function(target, tuple(taken if each is None else each for each in arguments))
    graph.output(value)
    return fx.GraphModule(torch.nn.Module(), graph)


@pytest.mark.parametrize("base", [-1, -2.5, 3])
def test_a_power_of_a_negative_number_has_its_sign(base: float) -> None:
    for exponent in (1, 2, 3):
        assert boxed_graph(graph_of((operator.pow, (base, None))))([exponent]) == base**exponent
        assert made_code(graph_of((operator.pow, (base, None))))(exponent) == base**exponent


def test_a_condition_raises_our_error() -> None:
    call = boxed_graph(graph_of((aten._assert_scalar.default, (None, "too many"))))
    call([True])
    with pytest.raises(CheckError, match="too many"):
        call([False])


def test_a_factorization_raises_torchs() -> None:
    graph = graph_of((aten._linalg_check_errors.default, (None, "linalg.inv")))
    next(node for node in graph.graph.nodes if node.op == "call_function").kwargs = {"is_matrix": True}
    with pytest.raises(torch.linalg.LinAlgError):
        boxed_graph(graph)([torch.tensor(1, dtype=torch.int32)])


def test_arguments_are_let_go_of() -> None:
    arguments = [torch.ones(2)]
    assert torch.equal(boxed_graph(graph_of((aten.neg.default, (None,))))(arguments), -torch.ones(2))
    assert arguments == []
