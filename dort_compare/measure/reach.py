"""What a value reaches: later values, outputs of the model and gradients, across its forward and backward graphs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from torch import fx

from dort_compare.trace import GraphRun


@dataclass(frozen=True)
class Reach:
    """How many later values depend on a value, and the names of the outputs and gradients that do."""

    values: int
    outputs: tuple[str, ...]
    gradients: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "outputs": list(self.outputs), "gradients": list(self.gradients)}


class Dataflow:
    """Follows values through graphs: what a forward graph saves is an input of the same name of its backward graph.

    AOTAutograd gives a forward graph the model's outputs first and then what it saves, and lets its backward graph
    return a gradient, or None, for each input of the forward graph.
    """

    def __init__(self, runs: Sequence[GraphRun]) -> None:
        self._runs = {run.index: run for run in runs}

    def reached(self, index: int, fx_node: str) -> Reach:
        """What the FX node of that name in graph ``index`` reaches."""
        run = self._runs[index]
        here = _later(_named(run, [fx_node]))
        saved, outputs, gradients = self._returned(run, here)
        values = sum(node.op == "call_function" for node in here)
        partner = self._backward_of.get(index)
        if partner is not None and saved:
            there = _later(_named(partner, saved))
            values += sum(node.op == "call_function" for node in there)
            gradients = [*gradients, *self._returned(partner, there)[2]]
        return Reach(values, tuple(outputs), tuple(gradients))

    def _returned(self, run: GraphRun, nodes: Iterable[fx.Node]) -> tuple[list[str], list[str], list[str]]:
        """Which of ``nodes`` the graph saves, returns as the model's outputs and as gradients."""
        found = set(nodes)
        returned = _outputs(run)
        if run.phase == "backward":
            names = self._inputs_behind(run)
            return [], [], [name for node, name in zip(returned, names, strict=False) if node in found]
        partner = self._backward_of.get(run.index)
        kept = len([name for name in _inputs(partner) if not name.startswith("tangents")]) if partner else 0
        first_saved = len(returned) - kept
        saved = [node.name for node in returned[first_saved:] if node in found]
        return saved, [node.name for node in returned[:first_saved] if node in found], []

    def _inputs_behind(self, backward: GraphRun) -> list[str]:
        """The names, the caller's where they are known, of the inputs that a backward graph has gradients for."""
        forward = next((self._runs[f] for f, b in self._backward_of.items() if b is backward), None)
        if forward is None:
            return [f"gradient {i}" for i in range(len(_outputs(backward)))]
        return [forward.input_names.get(name, name) for name in _inputs(forward)]

    @cached_property
    def _backward_of(self) -> dict[int, GraphRun]:
        """By the index of a forward graph, its backward graph: both have one compile id. Pieces have no partner."""
        found = {}
        for index, run in self._runs.items():
            same = [r for r in self._runs.values() if r.compile_id == run.compile_id]
            partners = [r for r in same if r.phase == "backward"]
            if run.phase == "forward" and len(partners) == 1 and len(same) == 2:
                found[index] = partners[0]
        return found


def _inputs(run: GraphRun) -> list[str]:
    return [node.name for node in run.graph_module.graph.nodes if node.op == "placeholder"]


def _outputs(run: GraphRun) -> list[Any]:
    returned = run.graph_module.graph.output_node().args[0]
    return list(returned) if isinstance(returned, (tuple, list)) else [returned]


def _named(run: GraphRun, names: Iterable[str]) -> list[fx.Node]:
    wanted = set(names)
    return [node for node in run.graph_module.graph.nodes if node.name in wanted]


def _later(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    """``nodes`` and all that reads them, directly or not."""
    found: set[fx.Node] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(node.users)
    return found
