"""What several ONNX nodes round on their way is noise; what is more is not."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from dort_compare.measure.distance.metrics import distance
from dort_compare.measure.noise.local import local_error
from dort_compare.trace import Replay


def in_steps(x: Tensor, more: float) -> Tensor:
    """The GELU as four nodes in float16, of which the third leaves little: 1 + erf, far below 0."""
    return 0.5 * x * (1 + more + torch.erf((x / math.sqrt(2)).float()).half())


@pytest.mark.parametrize(
    ("between", "more", "is_noise"), [(None, 0, False), (torch.float16, 0, True), (torch.float16, 0.02, False)]
)
def test_a_rounding_between_is_noise(graphs_of: Any, between: torch.dtype | None, more: float, is_noise: bool) -> None:
    x = torch.linspace(-3.5, -3, 64).half()
    (graph,) = graphs_of(torch.nn.functional.gelu, x.float())
    node = next(node for node in graph.graph_module.graph.nodes if node.op == "call_function")
    replay = Replay({node.args[0].name: x.float()}, between=between)
    expected = torch.nn.functional.gelu(x.float()).half()
    value = in_steps(x, more)
    assert local_error(replay, node, expected, value, distance(expected, value)).is_noise == is_noise
