"""Networks that see: convolutional ones in plain torch, trained with batch norm, and those of transformers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from dort_compare.models.families.family import Member, pretrained


class ResidualBlock(nn.Module):
    """Two convolutions with batch norm beside a shortcut, as in ResNet-18."""

    def __init__(self, channels: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        projection = nn.Sequential(nn.Conv2d(channels, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = projection if stride > 1 or channels != outputs else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """Float images (batch, 3, height, width) to 10 logits each."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 7, 2, padding=3, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.blocks = nn.Sequential(ResidualBlock(8, 8, 1), ResidualBlock(8, 16, 2))
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.pool(self.stem(x)))
        return self.head(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


class UNet(nn.Module):
    """Down by pooling, up by transposed and interpolated convolutions; (batch, 3, h, w) to (batch, 2, h, w)."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.middle = self._double(3, 8), self._double(8, 16), self._double(16, 32)
        self.up2, self.merge2 = nn.ConvTranspose2d(32, 16, 2, stride=2), self._double(32, 16)
        self.up1 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.merge1, self.head = self._double(24, 8), nn.Conv2d(8, 2, 1)

    @staticmethod
    def _double(channels: int, outputs: int) -> nn.Sequential:
        halves = ((channels, outputs), (outputs, outputs))
        return nn.Sequential(
            *(nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(4, b), nn.SiLU()) for a, b in halves)
        )

    def forward(self, x: Tensor) -> Tensor:
        first = self.down1(x)
        second = self.down2(nn.functional.max_pool2d(first, 2))
        middle = self.middle(nn.functional.avg_pool2d(second, 2))
        second = self.merge2(torch.cat([self.up2(middle), second], 1))
        return self.head(self.merge1(torch.cat([self.up1(second), first], 1)))


def _images() -> Tensor:
    return torch.randn(2, 3, 32, 32)


def _plain(model: type[nn.Module]) -> Member:
    return Member(model(), (_images(),))


def _pretrained(model_type: str, **sizes: Any) -> Member:
    return Member(pretrained("AutoModel", model_type, **sizes), (), {"pixel_values": _images()})


_LAYERS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
_PATCHES = {**_LAYERS, "image_size": 32, "patch_size": 8}
_SWIN = {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4}

MEMBERS: dict[str, Callable[[], Member]] = {
    "ResNet": functools.partial(_plain, ResNet),
    "U-Net": functools.partial(_plain, UNet),
    "ViT": functools.partial(_pretrained, "vit", **_PATCHES),
    "CLIP vision": functools.partial(_pretrained, "clip_vision_model", **_PATCHES),
    "Swin": functools.partial(_pretrained, "swin", **_SWIN),
    "ConvNeXt": functools.partial(_pretrained, "convnext", hidden_sizes=[8, 16], depths=[1, 1], num_stages=2),
}
