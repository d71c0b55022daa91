"""Why dynamo ended a graph before the end of the function that it traced, or made none of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from torch import fx
from torch._dynamo.utils import counters, get_compilation_metrics

_EXPLAINED, _AT = "Explanation: ", ", at "
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_JUMPS = ("generic_jump", "Data-dependent branching")
"""How dynamo calls a branch whose condition is a tensor."""


def graph_break(graph_module: fx.GraphModule) -> str | None:
    """What broke the graph, and the file:line where; None of one that ends as the function does, or of no dynamo's."""
    reason = getattr(graph_module, "compile_subgraph_reason", None)
    if reason is None or not reason.graph_break:
        return None
    where = reason.user_stack[-1:]
    return _why(reason.reason) + "".join(f"{_AT}{frame.filename}:{frame.lineno}" for frame in where)


def attempts() -> list[Any]:
    """What torch keeps of the compilations of this process, those that failed too."""
    return get_compilation_metrics()


def breaks_without_a_graph(before: Sequence[Any], told: Sequence[str]) -> Iterator[str]:
    """Why and where dynamo has left code to eager torch, and called no backend, since the attempts ``before``.

    A break in a loop, or in a ``with``, leaves the whole function uncompiled; so does one that was compiled too often.
    A break before the first operation of a function leaves no graph to break. One within a function that another calls
    ends the attempts at both: what is ``told`` of a graph, or of one of them, is not told again.
    """
    known = set(map(id, before))
    tried = [attempt for attempt in attempts() if id(attempt) not in known]
    again = {reason.partition(_AT)[0] for reason in told}
    for attempt in tried:
        if attempt.fail_reason:
            again.add(why := _why(attempt.fail_reason))
            yield f"{why}: nothing is compiled of {_name(attempt) if attempt.co_name else 'a function'}"
    for attempt in tried:
        if attempt.graph_op_count == 0:
            broke = {*(attempt.restart_reasons or ())} & counters["graph_break"].keys()
            for why in sorted({*map(_why, broke)} - again):
                again.add(why)
                yield f"{why}, before any operation of {_name(attempt)}"


def _name(attempt: Any) -> str:
    return f"{attempt.co_name}{_AT}{attempt.co_filename}:{attempt.co_firstlineno}"


def _why(reason: str) -> str:
    lines = [line.strip().rstrip(".") for line in reason.splitlines() if line.strip()] or ["unknown"]
    explained = [line.removeprefix(_EXPLAINED) for line in lines if line.startswith(_EXPLAINED)]
    return "A branch depends on data" if lines[0].startswith(_JUMPS) else _ADDRESS.sub("", [*explained, lines[0]][0])
