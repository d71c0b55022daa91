"""What every small model of diffusers is described by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

Draw = Callable[[torch.Generator], torch.Tensor]
"""Makes a tensor by chance."""


@dataclass(frozen=True)
class Small:
    """What a class is built with, and what the model is called with: values, or draws of them."""

    config: Mapping[str, Any]
    arguments: Mapping[str, Any]


def noise(*shape: int) -> Draw:
    """Normal numbers."""
    return lambda generator: torch.randn(shape, generator=generator)


def below(limit: int, *shape: int) -> Draw:
    """Whole numbers below a limit: tokens, labels, steps in time."""
    return lambda generator: torch.randint(limit, shape, generator=generator)


TEXT: Mapping[str, Any] = {"encoder_hidden_states": noise(2, 6, 16)}
MASK = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
