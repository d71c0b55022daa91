"""The whole graphs of a step, which of their nodes are outputs of the model, and which are gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import fx

from dort_compare.descriptors import is_token
from dort_compare.fx_graph import returned_by
from dort_compare.provenance import Phase
from dort_compare.trace.graph_run import GraphRun


@dataclass(frozen=True)
class TracedStep:
    """A forward graph and its backward graph, or an inference graph alone; ``input_names`` are the caller's names of
    inputs of the former.

    AOTAutograd gives a forward graph the model's outputs first and then what it saves, hands the latter to the backward
    graph under the same names, beside the tangents, and lets that one return a gradient, or None, for each input of the
    forward graph but for the tokens that come first.
    """

    forward: fx.Graph
    backward: fx.Graph | None
    input_names: Mapping[str, str]

    @property
    def graphs(self) -> tuple[fx.Graph, ...]:
        return (self.forward,) if self.backward is None else (self.forward, self.backward)

    @property
    def outputs(self) -> dict[str, fx.Node]:
        """The nodes that the forward graph returns as outputs of the model, by name."""
        saved = set(_placeholders(self.backward))
        returned = returned_by(self.forward)
        count = len(returned) - len(saved & {node.name for node in returned if isinstance(node, fx.Node)})
        return {node.name: node for node in returned[:count] if isinstance(node, fx.Node)}

    @property
    def gradients(self) -> dict[str, fx.Node]:
        """The nodes that the backward graph returns, by the names of what they are gradients of."""
        if self.backward is None:
            return {}
        inputs = [node.name for node in self.forward.find_nodes(op="placeholder") if not is_token(node)]
        names = [self.input_names.get(name, name) for name in inputs]
        pairs = zip(names, returned_by(self.backward), strict=False)
        return {name: node for name, node in pairs if isinstance(node, fx.Node)}

    def saved(self, nodes: set[fx.Node]) -> set[str]:
        """The names of those of ``nodes``, of the forward graph, that the backward graph reads."""
        return {node.name for node in nodes} & set(_placeholders(self.backward))


def traced_steps(runs: Sequence[GraphRun]) -> list[TracedStep]:
    """The whole graphs that belong together, by compile id; of those that are known in pieces alone there are none."""
    steps = []
    for compile_id in dict.fromkeys(run.compile_id for run in runs):
        same = [run for run in runs if run.compile_id == compile_id]
        if any(run.is_piece and run.whole is None for run in same):
            continue
        inference, forward, backward = (_traced(same, phase) for phase in ("inference", "forward", "backward"))
        names = {name: given for run in same if run.phase != "backward" for name, given in run.input_names.items()}
        match inference, forward, backward:
            case [graph], [], []:
                steps.append(TracedStep(graph, None, names))
            case [], [graph], [gradients]:
                steps.append(TracedStep(graph, gradients, names))
    return steps


def _traced(runs: Sequence[GraphRun], phase: Phase) -> list[fx.Graph]:
    return list(dict.fromkeys(run.traced.graph for run in runs if run.phase == phase))


def _placeholders(graph: fx.Graph | None) -> list[str]:
    return [node.name for node in graph.nodes if node.op == "placeholder"] if graph else []
