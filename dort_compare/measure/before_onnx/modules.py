"""One row for every result of a module and every gradient by one: plain eager against the traced graphs."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import fx

from dort_compare.align.sightings import GraphCall
from dort_compare.align.traced_calls import is_backward
from dort_compare.dtypes import dtype_name
from dort_compare.measure.before_onnx.module_matches import Match, Matches
from dort_compare.measure.distance.distances import Distance, Number
from dort_compare.measure.rows import json_number
from dort_compare.node_meta import IS_SUM
from dort_compare.provenance import source_line, target_name
from dort_compare.trace.module_calls import Kind, Place
from dort_compare.trace.reachable import behind

Status = Literal["ok", "diverges", "unaligned"]


@dataclass(frozen=True)
class ModuleRow:
    """A result of a call of a module, or the gradient of the loss by it, compared.

    Attributes:
        module: path of the module.
        call: which of its calls, from 0.
        leaf: where in what the call returned, "" for a tensor alone.
        kind: "output" or "gradient".
        dtype: of eager's tensor.
        shape: of eager's tensor.
        status: "ok", "diverges" or "unaligned".
        reason: why nothing was held against an unaligned value.
        fx_node: what stands for it in the traced graphs, "" where Python made the call.
        fx_nodes: of one that departs, the nodes between it and the values before it that do not.
        cause: the module that these stem from.
        target: the ATen overload of the first of them.
        source: file:line of the first of them.
        distance: from eager, both on torch's kernels.
        noise_floor: what of that is noise, in the unit of the values.
        torch_vs_float64: the largest distance of eager's elements from float64's, where it was asked for.
        graph_vs_float64: the same of the traced graphs'.
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


def module_rows(
    matches: Matches, in_eager: Counter[str], in_graphs: Counter[str], outcome_departs: bool
) -> tuple[ModuleRow, ...]:
    """The rows in eager's order, a gradient where it arrives. The counters say how often each module was called.

    A departure that leads to no other, and not to an output or gradient of the model either, may be a wrong pair, such
    as of a result that nobody reads and the graph does not compute: it is not aligned.
    """
    surroundings = _Surroundings(matches.found.values())
    rows = []
    for place in matches.dtypes:
        if place.kind == "input":
            continue  # it only bounds where a departure enters
        match = matches.found.get(place)
        reason = _miscounted(place.call.module, in_eager, in_graphs) or _why_not(place, match, matches)
        if match is not None and reason is None and not match.ok and not surroundings.leads_on(match, outcome_departs):
            reason = "what it is held against differs, but nothing that follows from it does"
        rows.append(_row(place, match, reason, matches, surroundings))
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
        return "no value of the compiled graphs is sure to stand for it"
    return None if matches.is_certain(place) else "what it is held against may not be it"


def _row(place: Place, match: Match | None, reason: str | None, matches: Matches, around: _Surroundings) -> ModuleRow:
    dtype, shape = dtype_name(matches.dtypes[place]), tuple(matches.shapes[place])
    call = place.call
    row = ModuleRow(call.module, call.number, place.leaf, place.kind, dtype, shape, "unaligned", reason)
    if match is None or reason is not None:
        return row
    row = replace(
        row,
        status="ok" if match.ok else "diverges",
        fx_node=match.node.name if match.node else "",
        distance=match.error.distance.between("eager", "the traced graph"),
        noise_floor=match.error.noise_floor,
        torch_vs_float64=match.error.expected_vs_float64,
        graph_vs_float64=match.error.got_vs_float64,
    )
    return row if match.ok else replace(row, **_cause(place, match, around))


def _cause(place: Place, match: Match, around: _Surroundings) -> dict[str, Any]:
    """Where the departure enters, as closely as values that agree around it tell."""
    node, run = match.maker or (match.node, match.run)
    nodes = around.since_agreement(node, run) if node is not None and run is not None else []
    if run is None or not nodes:
        return {"cause": place.call.module}
    paths = [run.module_of(node) for node in nodes if not node.meta.get(IS_SUM)]
    return {
        "fx_nodes": tuple(node.name for node in nodes),
        "cause": common_path(paths) if paths else place.call.module,
        "target": target_name(nodes[0]),
        "source": source_line(nodes[0]),
    }


class _Surroundings:
    """Which nodes of each run of a graph agree with eager, and which depart."""

    def __init__(self, matches: Iterable[Match]) -> None:
        self._agreeing: dict[GraphCall | None, set[fx.Node | None]] = defaultdict(set)
        self._departing: dict[GraphCall | None, set[fx.Node | None]] = defaultdict(set)
        for match in matches:
            (self._agreeing if match.ok else self._departing)[match.run].add(match.node)

    def leads_on(self, match: Match, outcome_departs: bool) -> bool:
        """Whether something departs that follows from ``match``; all that was compared may lie before it."""
        if match.node is None:
            return outcome_departs
        later = behind(match.node.users)
        if later & self._departing[match.run]:
            return True
        return outcome_departs and not (later | {match.node}) & self._agreeing[match.run]

    def since_agreement(self, node: fx.Node, run: GraphCall) -> list[fx.Node]:
        """The operations from which ``node`` follows without one that agrees between, in order; of one phase only."""
        backward = is_backward(node)
        found: set[fx.Node] = set()
        waiting = [node]
        while waiting:
            each = waiting.pop()
            if each in found or each in self._agreeing[run] or each.op != "call_function":
                continue
            if is_backward(each) == backward:
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
    return [row for row in rows if row.status == "diverges"]


def alignment(rows: Sequence[ModuleRow]) -> Mapping[str, int]:
    """How many rows are not aligned, by reason."""
    return Counter(row.reason for row in rows if row.reason is not None)
