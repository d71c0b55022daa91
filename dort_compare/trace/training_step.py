"""A forward graph with its backward graph, run one after the other from the inputs that were recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from dort_compare.checks import check_of
from dort_compare.fx_graph import returned_by
from dort_compare.trace.eager import last_reads
from dort_compare.trace.graph_run import GraphRun
from dort_compare.trace.traced_step import TracedStep, traced_steps

MakeInterpreter = Callable[[fx.GraphModule], fx.Interpreter]


@dataclass(frozen=True)
class TrainingStep:
    """The runs of the graphs of a step."""

    traced: TracedStep
    forward: GraphRun
    backward: GraphRun | None

    @property
    def graphs(self) -> tuple[GraphRun, ...]:
        return (self.forward, self.backward) if self.backward else (self.forward,)

    @property
    def outputs(self) -> dict[str, fx.Node]:
        """The nodes that the forward graph returns as outputs of the model, by name."""
        return self.traced.outputs

    @property
    def gradients(self) -> dict[str, fx.Node]:
        """The nodes that the backward graph returns, by the names of what they are gradients of."""
        return self.traced.gradients

    @property
    def tangents(self) -> dict[str, torch.Tensor]:
        """What the backward graph is given and the forward graph does not make, by name."""
        if self.backward is None:
            return {}
        made = {node.name for node in returned_by(self.forward.graph_module.graph) if isinstance(node, fx.Node)}
        given = {name: value for name, value in self.backward.inputs.items() if name not in made}
        return {n: v for n, v in given.items() if isinstance(v, torch.Tensor) and v.is_floating_point()}

    def run(
        self, make_interpreter: MakeInterpreter, tangents: Mapping[str, torch.Tensor]
    ) -> dict[tuple[str, str], torch.Tensor]:
        """Outputs and gradients by ("output" or "gradient", name), in the dtypes that torch traced or wider ones.

        ``tangents`` take the place of those that were recorded.
        """
        made = run_graph(make_interpreter(self.forward.graph_module), list(self.forward.inputs.values()))
        found = {("output", name): made[name] for name in self.outputs}
        if self.backward is not None:
            given = {**self.backward.inputs, **made, **tangents}
            inputs = [given[name] for name in self.backward.inputs]
            del made, given
            returned = run_graph(make_interpreter(self.backward.graph_module), inputs)
            found |= {("gradient", name): returned[node.name] for name, node in self.gradients.items()}
        return {key: value for key, value in found.items() if isinstance(value, torch.Tensor)}


def training_steps(runs: Sequence[GraphRun]) -> list[TrainingStep]:
    """The steps of which every graph ran whole: pieces of a graph that was cut are runs of none."""
    whole = {run.graph_module.graph: run for run in runs if not run.is_piece}
    return [
        TrainingStep(step, whole[step.forward], whole[step.backward] if step.backward else None)
        for step in traced_steps(runs)
        if whole.keys() >= set(step.graphs)
    ]


@torch.no_grad()
def run_graph(interpreter: fx.Interpreter, inputs: Sequence[Any]) -> dict[str, Any]:
    """What the graph returns, by FX name; every other value is freed after its last reader. Checks are left out."""
    interpreter.args_iter = iter(inputs)
    reads = last_reads(interpreter.graph, keeps_outputs=True)
    for node in interpreter.graph.nodes:
        if node.op == "output":
            made = {returned.name: interpreter.env[returned] for returned in node.all_input_nodes}
            interpreter.env.clear()
            return made
        interpreter.env[node] = None if check_of(node) else interpreter.run_node(node)
        for read in reads[node]:
            del interpreter.env[read]
    return {}
