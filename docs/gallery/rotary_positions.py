"""Rotary angles of a long sequence, computed in the dtype that the model was cast to."""

import torch
from torch import Tensor, nn


class Rotary(nn.Module):
    def __init__(self, width: int, base: float = 10_000.0) -> None:
        super().__init__()
        self.register_buffer("frequencies", base ** (-torch.arange(0, width, 2) / width))

    def forward(self, x: Tensor) -> Tensor:
        positions = torch.arange(x.shape[-2], dtype=self.frequencies.dtype)
        angles = positions[:, None] * self.frequencies
        cos, sin = angles.cos(), angles.sin()
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def make() -> tuple[nn.Module, Tensor]:
    return Rotary(16).bfloat16(), torch.randn(1, 600, 16, dtype=torch.bfloat16)


def check() -> None:
    positions = torch.arange(600, dtype=torch.bfloat16)
    print(len(positions.unique()), "different positions of 600; the last are", *positions[-5:].int().tolist())


if __name__ == "__main__":
    check()
