"""One row for every result of a module and every gradient by one: plain eager against the traced graphs."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import fx

from dort_compare.align.sightings import GraphCall
from dort_compare.align.traced_calls import is_backward
from dort_compare.measure.metrics import Distance, Number
from dort_compare.measure.module_matches import Match, Matches
from dort_compare.measure.rows import json_number
from dort_compare.provenance import source_line, target_name
from dort_compare.trace.module_calls import Kind, Place

Status = Literal["ok", "departs", "unaligned"]


@dataclass(frozen=True)
class ModuleRow:
    """A result of a call of a module, or the gradient of the loss by it, compared.

    ``fx_node`` is what stands for it in the traced graphs, "" where Python made the call. Of a value that departs
    ``fx_nodes`` are the nodes between it and the values before it that do not, ``cause`` is the module that these stem
    from, and ``target`` and ``source`` belong to the first of them. ``distance`` is from eager on torch's kernels;
    ``reason`` says of an unaligned value why nothing was held against it.
    """

    module: str
    call: int
    leaf: str
    kind: Kind
    dtype: str
    shape: tuple[int, ...]
    status: Status
    reason: str | None = None
    fx_node: str = ""
    fx_nodes: tuple[str, ...] = ()
    cause: str = ""
    target: str = ""
    source: str = ""
    distance: Distance | None = None
    noise_floor: float | None = None
    torch_vs_float64: Number | None = None
    graph_vs_float64: Number | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "shape": list(self.shape),
            "fx_nodes": list(self.fx_nodes),
            "distance": self.distance.to_json() if self.distance else None,
            "noise_floor": json_number(self.noise_floor),
            "torch_vs_float64": json_number(self.torch_vs_float64),
            "graph_vs_float64": json_number(self.graph_vs_float64),
        }


def module_rows(matches: Matches, in_eager: Counter[str], in_graphs: Counter[str]) -> tuple[ModuleRow, ...]:
    """The rows in eager's order, a gradient where it arrives. The counters say how often each module was called."""
    agreeing = {(match.run, match.node) for match in matches.found.values() if match.ok}
    rows = []
    for place in matches.dtypes:
        if place.kind == "input":
            continue  # it only bounds where a departure enters
        match = matches.found.get(place)
        reason = _miscounted(place.call.module, in_eager, in_graphs) or _why_not(place, match, matches)
        rows.append(_row(place, match, reason, matches, agreeing))
    return tuple(rows)


def _miscounted(module: str, in_eager: Counter[str], in_graphs: Counter[str]) -> str | None:
    calls, traced = in_eager[module], in_graphs[module]
    if not traced:
        return "no operation of the compiled graphs stems from it"
    return None if calls == traced else f"called {calls} times in eager and {traced} times in the compiled model"


def _why_not(place: Place, match: Match | None, matches: Matches) -> str | None:
    if match is None:
        if place in matches.written:
            return "eager writes it in place afterwards"
        return "no value of the compiled graphs has its dtype and shape"
    return None if matches.is_certain(place) else "what it is held against may not be it"


_Node = tuple[GraphCall | None, fx.Node | None]


def _row(place: Place, match: Match | None, reason: str | None, matches: Matches, agreeing: set[_Node]) -> ModuleRow:
    dtype, shape = str(matches.dtypes[place]).removeprefix("torch."), tuple(matches.shapes[place])
    call = place.call
    row = ModuleRow(call.module, call.number, place.leaf, place.kind, dtype, shape, "unaligned", reason)
    if match is None or reason is not None:
        return row
    row = replace(
        row,
        status="ok" if match.ok else "departs",
        fx_node=match.node.name if match.node else "",
        distance=match.distance,
        noise_floor=match.noise_floor,
        torch_vs_float64=match.torch_error,
        graph_vs_float64=match.graph_error,
    )
    return row if match.ok else replace(row, **_cause(place, match, agreeing))


def _cause(place: Place, match: Match, agreeing: set[_Node]) -> dict[str, Any]:
    """Where the departure enters, as closely as values that agree around it tell."""
    if match.node is None or match.run is None:
        return {"cause": place.call.module}
    nodes = _between(match.node, {node for run, node in agreeing if run is match.run})
    if not nodes:
        return {"cause": place.call.module}
    paths = [match.run.module_of(node) for node in nodes if not node.meta.get("is_gradient_acc")]
    return {
        "fx_nodes": tuple(node.name for node in nodes),
        "cause": common_path(paths) if paths else place.call.module,
        "target": target_name(nodes[0]),
        "source": source_line(nodes[0]),
    }


def _between(node: fx.Node, agreeing: set[fx.Node | None]) -> list[fx.Node]:
    """The operations from which ``node`` follows without one that agrees between, in order; of one phase only."""
    backward = is_backward(node)
    found: set[fx.Node] = set()
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if each in found or each in agreeing or each.op != "call_function" or is_backward(each) != backward:
            continue
        found.add(each)
        waiting.extend(each.all_input_nodes)
    return [each for each in node.graph.nodes if each in found]


def common_path(paths: Sequence[str]) -> str:
    """The innermost module that all lie in: "a.b" of "a.b.c" and "a.b", "" of "a" and "b"."""
    levels = zip(*(path.split(".") for path in paths if path), strict=False)
    shared = itertools.takewhile(lambda names: len(set(names)) == 1, levels)
    return ".".join(names[0] for names in shared) if all(paths) else ""


def departures(rows: Sequence[ModuleRow]) -> list[ModuleRow]:
    """Those that depart, in order of execution."""
    return [row for row in rows if row.status == "departs"]


def without_a_stray(rows: Sequence[ModuleRow]) -> tuple[ModuleRow, ...]:
    """The rows of a model whose outputs and gradients do not depart: a lone departure leads to nothing, and so may be a
    wrong pair, such as of a result that nobody reads and the graph does not compute."""
    if len(departures(rows)) != 1:
        return tuple(rows)
    reason = "what it is held against differs, but nothing that follows from it does"
    return tuple(replace(row, status="unaligned", reason=reason) if row.status == "departs" else row for row in rows)


def alignment(rows: Sequence[ModuleRow]) -> Mapping[str, int]:
    """How many rows are not aligned, by reason."""
    return Counter(row.reason for row in rows if row.reason is not None)
