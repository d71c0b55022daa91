"""What nodes of a model do no more with than to cast it."""

from __future__ import annotations

from collections.abc import Iterable

import onnx
import torch

from dort_compare.dtypes import dtype_of_onnx
from dort_compare.trace.passages import RESHAPES

COMPUTE_NOTHING = RESHAPES | {"Identity", "Cast", "Transpose"}
"""Operators that move elements, or give them another dtype."""


def computing(op_types: Iterable[str]) -> list[int]:
    """The places of the operators that compute something: what several of them make is rounded on its way."""
    return [i for i, op_type in enumerate(op_types) if op_type not in COMPUTE_NOTHING]


def cast_to(reads: Iterable[tuple[onnx.NodeProto, Iterable[str]]]) -> dict[str, torch.dtype]:
    """By name, the dtypes that values are cast to by all that reads them, if that is one; ``reads`` holds nodes, each
    with the names that it reads."""
    found: dict[str, set[torch.dtype | None]] = {}
    for node, names in reads:
        for name in names:
            found.setdefault(name, set()).add(_dtype(node))
    return {name: dtype for name, (dtype, *others) in found.items() if dtype is not None and not others}


def _dtype(node: onnx.NodeProto) -> torch.dtype | None:
    """What a cast gives; None for other nodes, and where torch has no such dtype."""
    to = next((attribute.i for attribute in node.attribute if attribute.name == "to"), None)
    return None if to is None or node.op_type != "Cast" else dtype_of_onnx(to)
