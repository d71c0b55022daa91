"""Outputs in a few bits, as float8 and int4, shown in a dtype that is compared."""

from __future__ import annotations

from types import MappingProxyType

import onnx
from onnx import TensorProto, helper

from dort_compare.protos import copy_of

_WIDER = MappingProxyType(
    {
        **dict.fromkeys(
            (TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ),
            TensorProto.FLOAT,
        ),
        TensorProto.INT4: TensorProto.INT8,
        TensorProto.UINT4: TensorProto.UINT8,
    }
)
"""By element type, one that holds all of its numbers, and that ONNX Runtime casts it to."""


def with_wide_outputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with a cast behind every output in a few bits, which returns that in its place; the model itself where
    it has none."""
    wider = {output.name: _WIDER.get(output.type.tensor_type.elem_type) for output in model.graph.output}
    if not any(wider.values()):
        return model
    shown = copy_of(model)
    for output in shown.graph.output:
        if dtype := wider[output.name]:
            name = f"{output.name} as {TensorProto.DataType.Name(dtype).lower()}"
            shown.graph.node.append(helper.make_node("Cast", [output.name], [name], to=dtype))
            output.name, output.type.tensor_type.elem_type = name, dtype
    return shown
