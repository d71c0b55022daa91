"""Values that a model holds in another shape than the one they are to be compared in."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import helper

from dort_compare.align.inserted import Change, there_and_back
from dort_compare.align.tensor_types import Type


def reshape(model: onnx.ModelProto, changes: Sequence[Change]) -> None:
    """Gives values another shape, of known sizes, and those that read them the one that they had."""

    def step(read: str, made: str, wanted: Type) -> onnx.NodeProto:
        sizes = [dim.dim_value for dim in wanted.shape.dim]
        name = f"{made}/sizes"
        model.graph.initializer.append(helper.make_tensor(name, onnx.TensorProto.INT64, [len(sizes)], sizes))
        return helper.make_node("Reshape", [read, name], [made], f"{made}/Reshape")

    there_and_back(model, changes, step, "there")
