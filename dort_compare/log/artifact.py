"""What torch's structured trace (``TORCH_TRACE``, read by tlparse) holds of a compiled graph."""

from __future__ import annotations

from typing import Any

from torch._logging import trace_structured

from dort_compare import provenance
from dort_compare.log.compilation import Compilation

SCHEMA = 1


def leave_artifact(told: Compilation) -> None:
    """Adds one JSON file for the graph to the trace, under its compile id; nothing where torch writes no trace."""
    trace_structured(
        "artifact",
        metadata_fn=lambda: {"name": f"dort_compare_{told.phase}", "encoding": "json"},
        payload_fn=lambda: record_of(told),
        expect_trace_id=False,  # debug_compiler compiles outside of torch.compile too
    )


def record_of(told: Compilation) -> dict[str, Any]:
    """The compilation as JSON: times in milliseconds, ``graph`` the number and ``dump`` the file in the dump folder."""
    nodes = {node.name: node for node in told.graph_module.graph.nodes}
    return {
        "schema": SCHEMA,
        "phase": told.phase,
        "compile_id": told.compile_id,
        "problem": told.problem,
        "operators": sum(node.op.startswith("call_") for node in nodes.values()),
        "inputs": sum(node.op == "placeholder" for node in nodes.values()),
        "stages_ms": {name: round(1000 * seconds, 3) for name, seconds in told.stages.seconds.items()},
        "pieces": [
            {
                "graph": piece.model.metadata_props.get(provenance.GRAPH),
                "onnx_nodes": len(piece.model.graph),
                "dump": piece.dumped,
            }
            for piece in told.pieces
        ],
        "fallbacks": [
            {
                "fx_node": name,
                "target": provenance.target_name(nodes[name]),
                "source": provenance.source_line(nodes[name]),
                "reason": reason,
            }
            for name, reason in told.in_torch.items()
        ],
    }
