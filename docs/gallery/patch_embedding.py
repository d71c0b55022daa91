"""A stem of convolutions, and the patches that a vision transformer makes of what it gives."""

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d


class PatchEmbedding(nn.Module):
    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, channels, 7, stride=2, padding=3), nn.ReLU())
        self.patches = nn.Conv2d(channels, width, 4, stride=4)
        self.norm = nn.LayerNorm(width)

    def forward(self, images: Tensor) -> Tensor:
        patches = self.patches(self.stem(images))
        return self.norm(patches.flatten(2).transpose(1, 2))


def make() -> tuple[nn.Module, Tensor]:
    return PatchEmbedding(16, 64), torch.randn(2, 3, 64, 64)


def check() -> None:
    for channels in (12, 16, 20, 24, 32):
        images, weight = torch.randn(1, channels, 64, 64).bfloat16(), torch.randn(64, channels, 4, 4).bfloat16()
        right = conv2d(images.double(), weight.double(), stride=4)
        errors = []
        for enabled in (True, False):
            with torch.backends.mkldnn.flags(enabled=enabled):
                errors.append((conv2d(images, weight, stride=4) - right).norm() / right.norm())
        print("{} channels: {:.2%} with oneDNN, {:.2%} without".format(channels, *errors))


if __name__ == "__main__":
    torch.manual_seed(0)
    check()
