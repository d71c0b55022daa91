"""Masks, finite and infinite, are no measure for what is beside them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from of_function import Of
from planted_noise import plant
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

import dort_compare
from dort_compare.measure.distance.metrics import distance
from dort_compare.measure.noise.local import local_error
from dort_compare.trace import Replay

aten = torch.ops.aten


EXACT: dict[str, Callable[..., Tensor]] = {
    "added": lambda x, keep: x + torch.where(keep, 0.0, -1e9),
    "taken": lambda x, keep: torch.sub(x, torch.where(keep, 0.0, 1e4)),
    "filled": lambda x, keep: x.masked_fill(keep.logical_not(), -1e9),
    "chosen": lambda x, keep: torch.where(keep, x, -1e4),
    "shown": lambda x, keep: x.masked_fill(keep.logical_not(), -1e9).view(4, 64),
}
"""Ops that leave numbers far larger than the others, though far from infinity."""


def masked(case: str) -> tuple[Replay, torch.fx.Node, Tensor]:
    """The last call of a function of scores and what of them is kept, half of it, and what torch makes of it."""
    x = torch.randn(16, 16, generator=torch.Generator().manual_seed(0))
    graph = make_fx(EXACT[case])(x, torch.ones(16, 16).tril() > 0)
    values = dict(zip(("x_1", "keep_1"), (x, torch.ones(16, 16).tril() > 0), strict=True))
    calls = [node for node in graph.graph.nodes if node.op == "call_function"]
    for node in calls:
        result = Replay(values).value(node)
        assert result is not None
        values[node.name] = result
    return Replay(values), calls[-1], values[calls[-1].name]


@pytest.mark.parametrize("case", EXACT)
def test_a_finite_mask_is_no_measure_for_what_it_leaves(case):
    replay, node, right = masked(case)
    wrong = right.clone()
    wrong.view(-1)[0] += 1e-4  # the first element is kept
    found = local_error(replay, node, right, wrong, distance(right, wrong))
    assert not found.is_noise
    assert not found.torch_departs
    assert found.noise_floor < 1e-5


@pytest.mark.parametrize("case", EXACT)
def test_what_a_finite_mask_fills_may_be_off_by_a_rounding_of_its_own(case):
    replay, node, right = masked(case)
    other = torch.nextafter(right, torch.full_like(right, torch.inf))
    assert local_error(replay, node, right, other, distance(right, other)).is_noise


MOVES: dict[str, Callable[[Tensor], Tensor]] = {
    "cast": lambda x: x.to(torch.bfloat16),
    "unfolded": lambda x: aten.unfold_copy(x, 1, 4, 2),
    "gradient of a slice": lambda x: aten.slice_backward(x, [1, 10], 1, 0, 8, 1),
    "padded": lambda x: aten.reflection_pad1d(x, [1, 1]),
    "resampled": lambda x: aten.upsample_nearest1d(x[None], [16]),
}
"""Ops that take elements as they are, or round each once."""


@pytest.mark.parametrize("case", MOVES)
def test_each_element_that_is_only_moved_is_held_to_its_own_size(case):
    x = 10.0 ** -torch.arange(8.0)[None]
    graph = make_fx(MOVES[case])(x)
    values = {"x_1": x}
    for node in graph.graph.find_nodes(op="call_function", target=aten.unsqueeze.default):
        values[node.name] = x[None]
    node = next(n for n in graph.graph.nodes if n.op == "output").args[0]
    right = graph(x)
    wrong = torch.where(right.abs() < 1e-6, right * 1.3, right)
    found = local_error(Replay(values), node, right, wrong, distance(right, wrong))
    assert not found.is_noise
    assert not found.torch_departs
    other = torch.nextafter(right, 2 * right)
    assert local_error(Replay(values), node, right, other, distance(right, other)).is_noise


def test_a_fault_before_a_mask_is_seen_beside_the_masks_huge_numbers(monkeypatch):
    def attention(x: Tensor) -> Tensor:
        mask = torch.full((6, 6), torch.finfo(torch.float32).min).triu(1)
        return (x + mask).softmax(-1)

    plant(monkeypatch, aten.add.Tensor, 1 + 2**-8)
    report = dort_compare.compare(Of(attention), (torch.randn(2, 6, 6),))
    assert report.first_divergence is not None
    assert report.first_divergence.target == "aten.add.Tensor"


def test_equal_masks_are_no_measure_for_what_is_beside_them():
    """A rounding of the largest number is larger than any fault."""
    x, mask = torch.randn(6, 6), torch.full((6, 6), torch.finfo(torch.float32).min).triu(1)
    (node,) = make_fx(torch.add)(x, mask).graph.find_nodes(op="call_function", target=aten.add.Tensor)
    replay = Replay({operand.name: value for operand, value in zip(node.args, (x, mask), strict=True)})
    right = x + mask
    wrong = right.clone()
    wrong[0, 0] += 0.01
    assert local_error(replay, node, right, right * 1, distance(right, right * 1)).is_noise
    assert not local_error(replay, node, right, wrong, distance(right, wrong)).is_noise


def test_nothing_is_blamed_beside_a_mask_where_float64_is_not_known(graphs_of):
    (graph,) = graphs_of(lambda x: x.log_softmax(-1), torch.randn(4, 8))
    (node,) = graph.graph_module.graph.find_nodes(op="call_function", target=aten._log_softmax.default)
    expected = torch.randn(4, 8)
    expected[:, :2] = -1e9
    value = expected + 3e-5
    assert local_error(Replay({}), node, expected, value, distance(expected, value)).is_noise
