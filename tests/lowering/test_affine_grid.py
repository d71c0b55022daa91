"""The grid of an affine map, which torch cannot trace for a side of 1."""

from __future__ import annotations

import pytest
import torch
from every_pair import every_pair
from torch import Tensor, nn
from torch.nn import functional as F

from dort_compare import compare


@pytest.mark.filterwarnings("ignore:Since version 1.3.0")
@every_pair(
    size=((2, 1, 1, 5), (2, 1, 4, 1), (1, 1, 1, 1), (2, 3, 4, 5), (2, 1, 3, 5, 1), (1, 2, 2, 3, 4)),
    align_corners=(True, False),
    dtype=(torch.float32, torch.float64),
    dynamic=(None, True),
)
def test_grid_and_gradient_are_torchs(
    size: tuple[int, ...], align_corners: bool, dtype: torch.dtype, dynamic: bool | None
) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    function = lambda theta: F.affine_grid(theta, size, align_corners)  # noqa: E731
    theta = torch.randn(size[0], len(size) - 2, len(size) - 1, dtype=dtype, requires_grad=True)
    found = []
    for call in (function, torch.compile(function, backend="dort", options={"fallback": False}, dynamic=dynamic)):
        grid = call(theta)
        weights = torch.linspace(0, 1, grid.numel(), dtype=dtype).view_as(grid)
        found.append((grid, *torch.autograd.grad((grid * weights).sum(), theta)))
    torch.testing.assert_close(*found)
    assert found[0][0].stride() == found[1][0].stride()


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(8, 6)

    def forward(self, x: Tensor, image: Tensor) -> Tensor:
        grid = F.affine_grid(self.map(x).view(-1, 2, 3), list(image.shape), align_corners=False)
        return F.grid_sample(image, grid, align_corners=False)


def test_a_spatial_transformer_agrees() -> None:
    torch.manual_seed(0)
    report = compare(Transformer(), (torch.randn(2, 8), torch.randn(2, 3, 1, 9)), backward=True)
    assert report.verdict == "agree", report
