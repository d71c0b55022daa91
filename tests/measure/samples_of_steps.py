"""A value as the executions of a graph hand it on."""

from __future__ import annotations

import torch

from dort_compare.trace import Step
from dort_compare.trace.four_executions import Executed


def executed(value: torch.Tensor, own: torch.Tensor | None) -> Executed:
    """Of no graph: torch's value, the same as its float64, and ONNX's."""
    return Executed(Step(None, value, value, {}), "mul", own)  # type: ignore[arg-type]
