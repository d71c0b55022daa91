"""The casts of an ONNX model that are no operators of the FX graph: ours, and those around missing kernels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import onnx_ir as ir

from dort_compare import provenance
from dort_compare.log.values import onnx_text


def inserted_casts(models: Iterable[ir.Model]) -> dict[str, list[str]]:
    """By FX node: the Cast nodes among the ONNX nodes that compute it, unless one Cast is all that does."""
    nodes: dict[str, list[ir.Node]] = defaultdict(list)
    for model in models:
        for node in model.graph:
            if node.op_type != "Identity":
                nodes[node.metadata_props.get(provenance.FX_NODE, "")].append(node)
    return {
        name: [_text(node) for node in made if node.op_type == "Cast"] for name, made in nodes.items() if len(made) > 1
    }


def _text(node: ir.Node) -> str:
    return f"onnx Cast({onnx_text(node.inputs[0])}) -> {onnx_text(node.outputs[0])}"
