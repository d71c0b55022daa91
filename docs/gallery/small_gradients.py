"""Classifies every pixel; trained under float16 autocast without a loss scale."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Segmenter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, 16, 3, padding=1)
        self.classes = nn.Conv2d(16, 5, 1)

    def forward(self, image: Tensor) -> Tensor:
        return self.classes(F.silu(self.features(image)))


def loss(scores: Tensor) -> Tensor:
    target = torch.arange(scores.shape[-1]) % 5
    return F.cross_entropy(scores.float(), target.expand(scores.shape[0], scores.shape[2], -1))


def make() -> tuple[nn.Module, Tensor]:
    return Segmenter(), torch.randn(4, 3, 128, 128)


def check() -> None:
    torch.manual_seed(0)
    scores = torch.randn(4, 5, 128, 128, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(scores), scores)
    normal = torch.finfo(torch.float16).smallest_normal
    for scale in (1, 2**18):
        share = (scale * gradient.abs() < normal).float().mean()
        print(f"loss times {scale}: {100 * share:.0f} % of the gradients lie below {normal:.1e}")


if __name__ == "__main__":
    check()
