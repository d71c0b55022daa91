"""What is known of the dtypes and shapes of a model's values, and which of them show equal elements alike."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from operator import mul

import onnx
import torch

from dort_compare.dtypes import dtype_of_onnx
from dort_compare.protos import copy_of

Type = onnx.TypeProto.Tensor


def types_of(model: onnx.ModelProto) -> Mapping[str, Type]:
    """The types of the tensors that the model declares, by name."""
    values = (*model.graph.value_info, *model.graph.output)
    return {value.name: value.type.tensor_type for value in values if value.type.HasField("tensor_type")}


def is_alike(one: Type | None, other: Type | None) -> bool:
    """Whether dtype and sizes are the same, as far as both are known."""
    if one is None or other is None or not one.elem_type or not other.elem_type:
        return True
    if one.elem_type != other.elem_type:
        return False
    if not one.HasField("shape") or not other.HasField("shape"):
        return True
    pair = sizes(one), sizes(other)
    return len(pair[0]) == len(pair[1]) and all(
        m == n for m, n in zip(*pair, strict=True) if m is not None and n is not None
    )


def are_merged(one: Type, other: Type) -> bool:
    """Whether the dtype is the same, and one shape is the other with neighbouring axes made one: elements that are
    equal stand in the same order, as they do not where axes have changed places."""
    if one.elem_type != other.elem_type or not is_static(one) or not is_static(other):
        return False
    fewer, more = sorted((_bounds(one), _bounds(other)), key=len)
    return 0 not in (fewer[-1], more[-1]) and fewer[-1] == more[-1] and set(fewer) <= set(more)


def in_dtype(tensor: Type, elem_type: int) -> Type:
    """The type with another dtype, of ONNX's numbers for them."""
    changed = copy_of(tensor)
    changed.elem_type = elem_type
    return changed


def torch_dtype(tensor: Type | None) -> torch.dtype | None:
    """The dtype of torch that a tensor has; None where that is not known, or torch has none."""
    return dtype_of_onnx(tensor.elem_type) if tensor is not None else None


def is_static(tensor: Type) -> bool:
    """Whether all sizes are known."""
    return tensor.HasField("shape") and None not in sizes(tensor)


def sizes(tensor: Type) -> list[int | None]:
    """The sizes that a type with a shape declares; None for those that it does not know."""
    return [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]


def _bounds(tensor: Type) -> list[int]:
    """How many elements the axes up to each hold, but for axes of one."""
    return [1, *accumulate((size for size in sizes(tensor) if size != 1 and size is not None), mul)]
