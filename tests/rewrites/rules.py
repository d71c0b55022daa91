"""What tests of rewrites share."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import onnxruntime as ort

CPU = [("CPUExecutionProvider", {})]
CUDA = [("CUDAExecutionProvider", {}), *CPU]


def ops(of: ir.Model) -> list[str]:
    """The op types of a graph's nodes, in order."""
    return [node.op_type for node in of.graph]


def values(of: ir.Model, feeds: dict[str, Any]) -> Any:
    """What ONNX Runtime computes of a model's output ``y``."""
    session = ort.InferenceSession(ir.to_proto(of).SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(["y"], feeds)[0]
