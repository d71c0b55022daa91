"""An op by its definition, with results changed on the way."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from dort_compare.trace import Replay
from dort_compare.trace.definition import Changing, definition

aten = torch.ops.aten


def test_every_result_is_changed_but_for_what_is_shown_taken_or_written():
    x, seen = torch.ones(2, 3), []

    def change(value: torch.Tensor) -> torch.Tensor:
        seen.append(tuple(value.shape))
        return value + 1

    with Changing(change):
        shown = x.t().clone()
        total = (x.exp() * 2).sum(0)
        x.add_(1)
        torch.ones(4)
        places = x.argmax(0)
    assert torch.equal(shown, torch.ones(3, 2))
    assert seen == [(2, 3), (2, 3), (3,)]
    assert torch.allclose(total, torch.full((3,), 2 * ((torch.e + 1) * 2 + 1) + 1))
    assert places.dtype == torch.int64


@pytest.mark.parametrize("op", [aten.tanh_backward.default, aten._softmax_backward_data.default, aten.gelu.default])
def test_definitions_compute_what_the_kernel_does(op):
    y, g = torch.rand(4, 5, dtype=torch.float64), torch.randn(4, 5, dtype=torch.float64)
    args = {"gelu": (g,), "tanh_backward": (g, y)}.get(op._schema.name.split("::")[1], (g, y, 1, torch.float64))
    torch.testing.assert_close(definition(op)(*args), op(*args))


def test_what_has_no_definition_or_a_far_larger_one_has_none():
    assert definition(aten.mm.default) is None
    assert definition(aten.cumsum.default) is None


def test_replay_moves_what_lies_inside_of_an_op_and_its_element_of_several():
    x = torch.rand(4, 8)
    graph = make_fx(lambda x: aten.native_layer_norm(x, [8], None, None, 1e-5)[1])(x).graph
    (call,) = graph.find_nodes(op="call_function", target=aten.native_layer_norm.default)
    (mean,) = [node for node in call.users if node.args[1] == 1]
    replay = Replay({call.args[0].name: x})
    same = replay.by_definition(mean, lambda value: value)
    torch.testing.assert_close(same, x.double().mean(-1, keepdim=True))
    assert not torch.equal(replay.by_definition(mean, lambda value: value * 1.5), same)
    assert Replay({}).by_definition(mean, lambda value: value) is None
