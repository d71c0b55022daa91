"""Why dynamo ended a graph before the end of the function that it traced."""

from __future__ import annotations

import re

from torch import fx

_EXPLAINED = "Explanation: "
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_JUMP = "generic_jump"
"""How dynamo calls a branch whose condition is a tensor."""


def graph_break(graph_module: fx.GraphModule) -> str | None:
    """What broke the graph, and the file:line where; None of one that ends as the function does, or of no dynamo's."""
    reason = getattr(graph_module, "compile_subgraph_reason", None)
    if reason is None or not reason.graph_break:
        return None
    lines = [line.strip().rstrip(".") for line in reason.reason.splitlines() if line.strip()] or ["unknown"]
    explained = [line.removeprefix(_EXPLAINED) for line in lines if line.startswith(_EXPLAINED)]
    why = "A branch depends on data" if lines[0].startswith(_JUMP) else _ADDRESS.sub("", [*explained, lines[0]][0])
    where = reason.user_stack[-1:]
    return why + "".join(f", at {frame.filename}:{frame.lineno}" for frame in where)
