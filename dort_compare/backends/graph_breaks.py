"""Why dynamo ended a graph before the end of the function that it traced, or made none of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from torch import fx
from torch._dynamo.utils import get_compilation_metrics

_EXPLAINED = "Explanation: "
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_JUMPS = ("generic_jump", "Data-dependent branching")
"""How dynamo calls a branch whose condition is a tensor."""


def graph_break(graph_module: fx.GraphModule) -> str | None:
    """What broke the graph, and the file:line where; None of one that ends as the function does, or of no dynamo's."""
    reason = getattr(graph_module, "compile_subgraph_reason", None)
    if reason is None or not reason.graph_break:
        return None
    where = reason.user_stack[-1:]
    return _why(reason.reason) + "".join(f", at {frame.filename}:{frame.lineno}" for frame in where)


def attempts() -> list[Any]:
    """What torch keeps of the compilations of this process, those that failed too."""
    return get_compilation_metrics()


def skipped_functions(before: Sequence[Any]) -> Iterator[str]:
    """Which functions dynamo has left to eager torch as a whole since there were the attempts ``before``, and why.

    A break in a loop, or in a ``with``, leaves no graph to break; nor does one function that was compiled too often.
    """
    known = set(map(id, before))
    for attempt in attempts():
        if id(attempt) not in known and attempt.fail_reason:
            name = f"{attempt.co_name}, at {attempt.co_filename}:{attempt.co_firstlineno}"
            yield f"{_why(attempt.fail_reason)}: nothing is compiled of {name if attempt.co_name else 'a function'}"


def _why(reason: str) -> str:
    lines = [line.strip().rstrip(".") for line in reason.splitlines() if line.strip()] or ["unknown"]
    explained = [line.removeprefix(_EXPLAINED) for line in lines if line.startswith(_EXPLAINED)]
    return "A branch depends on data" if lines[0].startswith(_JUMPS) else _ADDRESS.sub("", [*explained, lines[0]][0])
