"""Conditions that a graph checks: they compute nothing, but where one does not hold, the run is an error."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import fx

aten = torch.ops.aten


@dataclass(frozen=True)
class Check:
    """``name`` is the FX node, and the ONNX value that says whether its condition holds."""

    name: str
    message: str


def check_of(node: fx.Node) -> Check | None:
    """The check that ``node`` is, with the message that torch's kernel would raise; None for any other node."""
    if node.target in (aten._assert_scalar.default, aten._assert_async.msg):
        return Check(node.name, str(node.args[1]))
    return None
