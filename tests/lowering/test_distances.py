"""Distances by the largest difference, and their gradients, where some are NaN or infinite."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

DISTANCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cdist": lambda x, y: torch.cdist(x, y, p=math.inf),
    "pdist": lambda x, y: F.pdist(torch.cat([x, y]), math.inf),
}
ROWS = [
    [[0.0, 1.0], [math.nan, 2.0], [1.0, 1.0]],
    [[0.0, 1.0], [math.inf, 2.0], [math.inf, -math.inf]],
    [[1.0, 1.0], [1.0, 1.0], [2.0, -5.0]],
]


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("name", DISTANCES)
def test_the_largest_difference_and_its_gradient_are_torchs(name: str, rows: list[list[float]]) -> None:
    torch._dynamo.reset()
    x, y = torch.tensor(rows, requires_grad=True), torch.tensor([[0.5, 1.0], [3.0, -1.0]], requires_grad=True)
    found = []
    for call in (DISTANCES[name], torch.compile(DISTANCES[name], backend="dort", options={"fallback": False})):
        distances = call(x, y)
        weights = torch.linspace(1, 2, distances.numel()).view_as(distances)
        found.append((distances, *torch.autograd.grad(distances, (x, y), weights)))
    torch.testing.assert_close(*found, equal_nan=True)
