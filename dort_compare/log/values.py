"""Values, sizes and times in a word: tensors as torch writes them, ``f32[2, s0]``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir.tensor_adapters import to_torch_dtype
from torch import fx
from torch.types import py_sym_types
from torch.utils._dtype_abbrs import dtype_abbrs

from dort_compare.dtypes import dtype_name


def kind_of(value: Any) -> str:
    """Dtype and shape of what torch traced for a node; a number, or its symbol, in full."""
    if isinstance(value, torch.Tensor):
        return f"{_short(value.dtype)}[{_listed(value.shape)}]"
    if isinstance(value, (tuple, list)):
        return f"({_listed(map(kind_of, value))})"
    if isinstance(value, py_sym_types):
        return f"Sym({value})"
    return repr(value) if value is None or isinstance(value, (bool, int, float)) else type(value).__name__


def node_text(node: fx.Node) -> str:
    """A node with what torch traced for it: ``mm: f32[2, 3]``; its name alone where that is nothing."""
    return f"{node.name}: {kind_of(node.meta['val'])}" if "val" in node.meta else node.name


def argument_text(argument: Any) -> str:
    """An argument of a call: nodes with their values, everything else as Python writes it."""
    if isinstance(argument, fx.Node):
        return node_text(argument)
    if isinstance(argument, (tuple, list)):
        return f"[{_listed(map(argument_text, argument))}]"
    return repr(argument) if isinstance(argument, str) else str(argument)


def onnx_text(value: ir.Value | None) -> str:
    """An ONNX value, with the dtype and shape that the model knows of it."""
    if value is None:
        return ""
    dtype = _short(to_torch_dtype(value.dtype)) if value.dtype else "?"
    return f"{value.name}: {dtype}[{'?' if value.shape is None else _listed(value.shape)}]"


def size_of(graph: fx.Graph) -> str:
    """How large a graph is."""
    kinds = [node.op for node in graph.nodes]
    return f"{sum(kind.startswith('call_') for kind in kinds)} operators, {kinds.count('placeholder')} inputs"


def milliseconds(seconds: float) -> str:
    """A time as the log has it."""
    return f"{1000 * seconds:.1f} ms"


def _short(dtype: torch.dtype) -> str:
    return dtype_abbrs.get(dtype, dtype_name(dtype))


def _listed(items: Iterable[Any]) -> str:
    return ", ".join(map(str, items))
