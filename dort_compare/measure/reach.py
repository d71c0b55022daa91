"""What a value reaches: later values, outputs of the model and gradients, across its forward and backward graphs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import fx

from dort_compare.align.graph_outputs import unreturned
from dort_compare.trace import GraphRun
from dort_compare.trace.reachable import behind
from dort_compare.trace.traced_step import TracedStep, traced_steps
from dort_compare.views import history


@dataclass(frozen=True)
class Reach:
    """How many later values depend on a value, and the names of the outputs and gradients that do.

    ``beyond``: what its graph returns of these may be read outside of it, behind a graph break, by another run of it,
    by another piece of a graph that was cut, or by a loss whose gradients depend on it; what comes of that is not among
    them, nor are gradients of what another graph handed on.
    """

    values: int
    outputs: tuple[str, ...]
    gradients: tuple[str, ...]
    beyond: bool = False

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "outputs": list(self.outputs), "gradients": list(self.gradients)}


class Lineage:
    """Follows values through graphs, and from a forward graph through what it saves into its backward graph; not
    through a loss of the caller's, if there is one, of what the model returns.

    ``runs`` are the first ones of all graphs, ``later`` others of the same; ``repeated`` are the graphs, by index, that
    ran more than once, of which not all need be known.
    """

    def __init__(
        self,
        runs: Sequence[GraphRun],
        *,
        has_loss: bool = False,
        later: Sequence[GraphRun] = (),
        repeated: Collection[int] = (),
    ) -> None:
        self._has_loss = has_loss
        self._runs = {run.index: run for run in runs}
        self._steps = {graph: step for step in traced_steps(runs) for graph in step.graphs}
        self._repeated = {self._runs[index].traced.graph for index in repeated}
        self._names: dict[fx.Graph, dict[int, dict[str, str]]] = {}
        for run in (*runs, *later):
            self._names.setdefault(run.traced.graph, {}).setdefault(run.number, {}).update(run.input_names)

    def operands(self, index: int, fx_node: str) -> tuple[str, ...]:
        """The values that the FX node of that name in graph ``index`` reads."""
        nodes = self._runs[index].graph_module.graph.nodes
        return tuple(read.name for node in nodes if node.name == fx_node for read in node.all_input_nodes)

    def reached(self, index: int, *fx_nodes: str, run: int = 1) -> Reach:
        """What the FX nodes of those names in graph ``index`` reach, in that ``run`` of it, through all of the graph
        that it is a piece of."""
        graph, step = self._whole(index)
        found = _later(graph, fx_nodes)
        if step is None:
            return Reach(_computed(found), (), (), not found.isdisjoint(graph.output_node().all_input_nodes))
        if step.backward is not None and graph is step.forward:
            found |= _later(step.backward, step.saved(found))
        step = replace(step, input_names=self._input_names(step, graph, run))
        outputs, gradients = _among(step.outputs, found), _among(step.gradients, found)
        callers = tuple(name for name in gradients if not step.input_names or name in step.input_names.values())
        return Reach(_computed(found), outputs, callers, self._is_read_on(step, outputs, gradients))

    def _is_read_on(self, step: TracedStep, outputs: Collection[str], gradients: Collection[str]) -> bool:
        """Whether other graphs, or another run of these, may read some of these results, or a loss some of the
        outputs."""
        has_others = any(run.traced.graph not in step.graphs for run in self._runs.values())
        has_others |= not self._repeated.isdisjoint(step.graphs)
        by_loss = self._has_loss and step.backward is not None and bool(outputs)
        return by_loss or (has_others and bool(outputs or gradients))

    def _input_names(self, step: TracedStep, graph: fx.Graph, run: int) -> Mapping[str, str]:
        """The caller's names of what the forward graph reads in that run of ``graph``; where this is the backward one,
        no run of which says to which of the forward graph it belongs, those that all runs have, and its own."""
        own, forward = self._names[graph].get(run, {}), self._names[step.forward]
        if graph is step.forward:
            return own
        steady = set.intersection(*(set(names.items()) for names in forward.values()))
        return {**dict(steady), **own}

    def unreached(self, values: Mapping[int, Sequence[str]]) -> set[str]:
        """The names of the gradients that none of these values, FX nodes by graph, leads to; of none where one may be
        made of what they reach outside of their graphs."""
        reaches = [self.reached(index, *fx_nodes) for index, fx_nodes in values.items()]
        if any(reach.beyond for reach in reaches):
            return set()
        named = {name for step in self._steps.values() for name in step.gradients}
        return named.difference(*(reach.gradients for reach in reaches))

    def is_result(self, index: int, fx_node: str) -> bool:
        """Whether the FX node of that name in graph ``index`` is an output of the model or a gradient; of a graph that
        stands alone, whether it returns it."""
        graph, step = self._whole(index)
        if step is None:
            return self._is_among(index, fx_node, graph.output_node().all_input_nodes)
        return self._is_among(index, fx_node, (*step.outputs.values(), *step.gradients.values()))

    def may_be(self, index: int, fx_node: str, kind: str, name: str) -> bool:
        """Whether the FX node of that name in graph ``index`` is the result of that ``kind``, "output", "update" or
        "gradient", that goes by ``name``, as far as the graphs know: they name gradients of parameters alone."""
        _, step = self._whole(index)
        if step is None:
            return self.is_result(index, fx_node)
        named = step.gradients if kind == "gradient" else step.outputs
        if kind == "gradient" and any(name in other.gradients for other in self._steps.values()):
            named = {name: named[name]} if name in named else {}
        return self._is_among(index, fx_node, named.values())

    def _whole(self, index: int) -> tuple[fx.Graph, TracedStep | None]:
        """The graph that graph ``index`` is or is a piece of, and the step that it belongs to."""
        graph = self._runs[index].traced.graph
        return graph, self._steps.get(graph)

    def _is_among(self, index: int, fx_node: str, results: Iterable[fx.Node]) -> bool:
        """Whether the FX node of that name in graph ``index`` is one of the ``results``, of this or other graphs."""
        graph = self._runs[index].traced.graph
        return any(node.name == fx_node and node.graph is graph for node in results)

    def unreturned(self, index: int) -> list[str]:
        """The FX nodes that graph ``index`` returns and its ONNX model does not."""
        run = self._runs[index]
        return unreturned(run.graph_module, run.onnx_model)

    def shown(self, index: int, fx_node: str) -> tuple[str, ...]:
        """What the graph computes that the FX node of that name is a view of; the node itself where it is none."""
        nodes = self._runs[index].graph_module.graph.nodes
        sources = [source for node in nodes if node.name == fx_node for source in history(node)[1]]
        return tuple(source.name for source in sources if source.op == "call_function")

    def leads_to(self, index: int, fx_node: str, other: str) -> bool:
        """Whether the FX node called ``other`` depends on ``fx_node``, both in graph ``index``."""
        return any(node.name == other for node in _later(self._runs[index].graph_module.graph, [fx_node]))


def _computed(nodes: Iterable[fx.Node]) -> int:
    return sum(node.op == "call_function" for node in nodes)


def _among(named: Mapping[str, fx.Node], nodes: set[fx.Node]) -> tuple[str, ...]:
    return tuple(name for name, node in named.items() if node in nodes)


def _later(graph: fx.Graph, names: Iterable[str]) -> set[fx.Node]:
    """What the graph takes or computes under ``names``, and all that reads it, directly or not."""
    wanted = set(names)
    return behind(node for node in graph.nodes if node.name in wanted)
