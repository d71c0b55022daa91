"""Attention over the cells of an image, with a coarse additive mask that is upsampled to them."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class MaskedAttention(nn.Module):
    def __init__(self, width: int, cells: int) -> None:
        super().__init__()
        self.query_key = nn.Linear(width, 2 * width)
        self.finer = nn.Upsample(size=cells, mode="linear")

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        query, key = self.query_key(x).chunk(2, dim=-1)
        scores = query @ key.transpose(-2, -1) / x.shape[-1] ** 0.5
        return (scores + self.finer(mask)).softmax(-1) @ x


def make() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    mask = torch.zeros(1, 16, 4)
    mask[:, :, 2:] = -torch.inf
    return MaskedAttention(8, 16), (torch.randn(1, 16, 8), mask)


def check() -> None:
    mask = torch.tensor([[[0, 0, -torch.inf, -torch.inf]]])

    def upsample(x: Tensor) -> Tensor:
        return F.interpolate(x, size=8, mode="linear")

    print("eager    ", *upsample(mask).flatten().tolist())
    print("aot_eager", *torch.compile(upsample, backend="aot_eager")(mask).flatten().tolist())


if __name__ == "__main__":
    check()
