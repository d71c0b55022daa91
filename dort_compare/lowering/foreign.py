"""What of a graph no ONNX value of ours can stand for."""

from __future__ import annotations

from typing import Any

import torch
from onnx_ir.tensor_adapters import from_torch_dtype
from torch import fx

from dort_compare.dtypes import dtype_name, is_complex_tensor
from dort_compare.scalars import is_number

aten = torch.ops.aten

TRANSFORMS = {aten._fft_r2c.default, aten._fft_c2c.default, aten._fft_c2r.default}
_IN_PARTS = {aten.view_as_real.default, aten.view_as_complex.default, aten.resolve_conj.default, *TRANSFORMS}
"""The calls that take or return complex tensors, of which an ONNX value holds the real and imaginary parts."""


def foreign(node: fx.Node) -> tuple[str, str] | None:
    """That a node "takes" or "is", as the first word says, what the second names; None where ONNX values can stand for
    all of it."""
    kind = foreign_kind(node.meta["val"]) if "val" in node.meta else None
    return ("is", kind) if kind else _complex_kind(node)


def foreign_kind(value: Any) -> str | None:
    """What a traced value is, where no ONNX value of ours can stand for it: "a complex32 tensor", "a str"."""
    if isinstance(value, (tuple, list)):
        return next((kind for kind in map(foreign_kind, value) if kind), None)
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            return f"a {str(value.layout).removeprefix('torch.')} tensor"
        return None if _holds(value.dtype) else f"a {dtype_name(value.dtype)} tensor"
    if isinstance(value, torch.SymInt) and value.node.is_nested_int():
        return "a size of a nested tensor"
    return None if is_number(value) or value is None else f"a {type(value).__name__}"


def _complex_kind(node: fx.Node) -> tuple[str, str] | None:
    """That a call "takes" or "is", as the first word says, what the second names: "a complex64 tensor".

    None where it does neither, or ONNX values of ours hold the parts.
    """
    if node.op != "call_function" or node.target in _IN_PARTS:
        return None
    found = next(filter(is_complex, (*node.all_input_nodes, node)), None)
    if found is None:
        return None
    return "is" if found is node else "takes", f"a {dtype_name(_first(found.meta['val']).dtype)} tensor"


def is_complex(node: fx.Node) -> bool:
    """Whether a node is a complex tensor, or several."""
    return is_complex_tensor(_first(node.meta.get("val")))


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, (tuple, list)) and value else value


def _holds(dtype: torch.dtype) -> bool:
    """Whether ONNX Runtime takes and gives tensors of a dtype in Python; those of float8 it only computes with."""
    if dtype.is_complex:
        return dtype != torch.complex32
    if dtype.is_floating_point and dtype.itemsize < 2:
        return False
    try:
        return from_torch_dtype(dtype) is not None
    except TypeError:
        return False
