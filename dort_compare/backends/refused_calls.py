"""Which calls of a graph stay out of ONNX Runtime, and why: from the names of FX nodes to reasons."""

from __future__ import annotations

from torch import fx

from dort_compare.backends.building import Building
from dort_compare.fx_graph import call_of
from dort_compare.lowering.survey import reason_of, survey
from dort_compare.runtime.binding import devices_of
from dort_compare.runtime.kernels import missing_kernels


def refused_calls(graph_module: fx.GraphModule, build: Building, problem: Exception) -> dict[str, str]:
    """The calls that ONNX Runtime cannot run; all of them where ``problem``, for which the whole graph was refused,
    cannot be laid at the door of some, as with PyTorch's exporter."""
    reasons = _surveyed(graph_module, build) if build.options.exporter == "native" else {}
    return reasons or all_calls(graph_module, reason_of(problem))


def _surveyed(graph_module: fx.GraphModule, build: Building) -> dict[str, str]:
    """The calls that cannot be lowered, and those of which the providers have no kernel for an ONNX node."""
    found = survey(graph_module, build.phase, build.options.opset)
    nodes = {node.name: node for node in graph_module.graph.nodes}
    lacking = missing_kernels(found.graph, build.options.session.resolved_providers(devices_of(build.example_inputs)))
    reasons = {call_of(nodes[name]): reason for name, reason in lacking.items()} | dict(found.refused)
    return {node.name: reasons[node] for node in graph_module.graph.nodes if node in reasons}


def all_calls(graph_module: fx.GraphModule, reason: str) -> dict[str, str]:
    """Every call, for one reason; a ``getitem`` is none of its own."""
    calls = (node for node in graph_module.graph.nodes if node.op == "call_function" and call_of(node) is node)
    return {node.name: reason for node in calls}
