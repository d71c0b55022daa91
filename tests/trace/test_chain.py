"""A chain of ops again, from what a fused node read."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from dort_compare.trace import Replay
from dort_compare.trace.replay import chain_to


def nodes_of(graphs_of, function, *args):
    (graph,) = graphs_of(function, *args)
    return {node.name: node for node in graph.graph_module.graph.nodes}, graph.named_inputs()


def test_a_chain_leads_from_what_is_known_to_the_node_and_no_further(graphs_of):
    nodes, _ = nodes_of(graphs_of, lambda x: (x.exp().neg() * x.sin()).abs(), torch.randn(3))
    assert [node.name for node in chain_to(nodes["abs_1"], {"exp"})] == ["neg", "sin", "mul"]
    assert chain_to(nodes["abs_1"], {"mul"}) == []


def test_a_chain_is_computed_in_its_own_dtypes_or_in_float64(graphs_of):
    x = torch.randn(64, dtype=torch.float16)
    nodes, inputs = nodes_of(graphs_of, lambda x: (x * x + x).float() * 3, x)
    last = nodes["mul_1"]
    replay = Replay(inputs, chain_to(last, inputs))
    assert torch.equal(replay.value(last), (x * x + x).float() * 3)
    exact = x.double() * x.double() + x.double()
    assert torch.equal(replay.value(last, in_float64=True), exact * 3)
    assert replay.is_chain
    assert set(replay.dtypes()) == {torch.float16, torch.float32}
    moved = replay.value(last, in_float64=True, change=lambda value: value.double() + 1)
    assert torch.allclose(moved, ((x.double() + 1) ** 2 + x.double() + 1) * 3)


def test_one_of_several_results_may_stand_in_a_chain(graphs_of):
    nodes, inputs = nodes_of(graphs_of, lambda x: x.exp().topk(2)[0] + 1, torch.randn(5))
    last = nodes["add"]
    replay = Replay(inputs, chain_to(last, inputs))
    (x,) = inputs.values()
    assert torch.equal(replay.value(last), x.exp().topk(2)[0] + 1)
    getitem = nodes["getitem"]
    assert torch.equal(Replay(inputs, chain_to(getitem, inputs)).value(getitem), x.exp().topk(2)[0])


def test_what_is_not_known_has_no_value(graphs_of):
    nodes, _ = nodes_of(graphs_of, lambda x: F.relu(x.exp()), torch.randn(5))
    assert Replay({}, chain_to(nodes["relu"], set())).value(nodes["relu"]) is None


def test_one_operand_is_moved_by_its_name(graphs_of):
    """In every place where it is read."""
    x, y = torch.randn(2, 3, dtype=torch.float64)
    nodes, inputs = nodes_of(graphs_of, lambda x, y: torch.addcmul(x, x, y), x, y)
    replay = Replay(inputs)
    assert list(replay.names()) == list(inputs)
    for name, moved in zip(inputs, ((x + 1) + (x + 1) * y, x + x * (y + 1)), strict=True):
        found = replay.value(nodes["addcmul"], in_float64=True, change=lambda value: value + 1, only=name)
        assert torch.allclose(found, moved), name


def test_integers_that_a_sum_casts_are_moved_by_their_name(graphs_of):
    nodes, inputs = nodes_of(graphs_of, lambda x: x.sum(dtype=torch.float32), torch.tensor([1, 2]))
    ((name, _),) = inputs.items()
    for only, sum_ in ((name, 5), ("another", 3)):
        found = Replay(inputs).value(nodes["sum_1"], in_float64=True, change=lambda value: value + 1, only=only)
        assert found == sum_
