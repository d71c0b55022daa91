"""Operations that draw random numbers: which of them run, and in what order, decides what those after them draw."""

from __future__ import annotations

import torch

RANDOM_OPERATORS = frozenset(
    ["RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"]
)
"""Those of ONNX."""


def draws(target: object) -> bool:
    """Whether the target of an FX node is an operator that reads the state of torch's generators."""
    return isinstance(target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in target.tags
