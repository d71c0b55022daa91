"""Python numbers in graphs, symbolic or not, and the 0-d tensors that stand for them in ONNX."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.types import py_sym_types

from dort_compare.dtypes import in_parts
from dort_compare.node_meta import UNBACKED


def is_number(value: object) -> bool:
    """Whether a traced value is a number, symbolic or not, and no tensor."""
    return isinstance(value, (bool, int, float, *py_sym_types))


def traced_dtype(value: Any) -> torch.dtype:
    """The dtype of a traced tensor, or of the 0-d tensor that holds a traced number exactly."""
    if isinstance(value, torch.Tensor):
        return value.dtype
    if isinstance(value, (bool, torch.SymBool)):
        return torch.bool
    return torch.float64 if isinstance(value, (float, torch.SymFloat)) else torch.int64


def as_tensor(argument: torch.Tensor | float) -> torch.Tensor:
    """An argument of a graph as a tensor: a number becomes a 0-d one."""
    if isinstance(argument, torch.Tensor):
        return argument
    return torch.tensor(argument, dtype=traced_dtype(argument), device="cpu")


def as_fed(argument: torch.Tensor | float) -> torch.Tensor:
    """An argument of a graph as an ONNX model takes it: a number as a 0-d tensor, a complex tensor in its parts."""
    return in_parts(as_tensor(argument))


def unbacked_symbols(node: fx.Node) -> frozenset[str]:
    """The symbols, in the traced value of ``node``, whose number only the data decide on."""
    read = node.meta.get(UNBACKED)
    return frozenset(map(str, free_unbacked_symbols(node.meta.get("val")))) if read is None else read
