"""Models that tests of several rooms compare."""

from __future__ import annotations

from torch import nn


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.SiLU(), nn.Linear(4, 2))
