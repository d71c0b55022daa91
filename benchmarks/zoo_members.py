"""What those have in common that build the members of a zoo."""

from __future__ import annotations

import torch
from torch import nn


class NotMade(Exception):  # noqa: N818  (what is said of a type, not a failure)
    """Why a type has no small member."""


def draw_zeros(model: nn.Module) -> None:
    """Draws the weights that start at zero: what is behind them would have no gradient."""
    with torch.no_grad():
        for each in model.parameters():
            if not each.any():
                each.normal_(std=0.02)
