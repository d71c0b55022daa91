"""What tests of rewrites share."""

from __future__ import annotations

import onnx_ir as ir

CPU = [("CPUExecutionProvider", {})]


def ops(of: ir.Model) -> list[str]:
    """The op types of a graph's nodes, in order."""
    return [node.op_type for node in of.graph]
