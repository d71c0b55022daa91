"""What makes the values of a model whose nodes may do the work of several FX nodes."""

from __future__ import annotations

import operator
from collections.abc import Container, Iterator, Mapping, Set
from dataclasses import dataclass, replace

import onnx
import torch
from torch import fx

from dort_compare.align.provenance import OnnxValue, node_name, values_of_fx_nodes
from dort_compare.fx_graph import call_of
from dort_compare.provenance import INSERTED, metadata_of
from dort_compare.trace.local_run import LocalRun
from dort_compare.trace.parts import Parts
from dort_compare.trace.replay import chain_to


def values_by_region(graph: fx.GraphModule, model: onnx.ModelProto) -> Mapping[str, OnnxValue]:
    """``values_of_fx_nodes``, each value with all nodes that make it of those that stand for earlier FX nodes.

    Where these do the work of other calls too, as no value in between stands for them or the nodes make it anew,
    ``fused`` names all of them.
    """
    stands = values_of_fx_nodes(model)
    calls = {node.name: node for node in graph.graph.nodes if node.op == "call_function"}
    compared = {name: stands[name] for name in calls if name in stands and not stands[name].opaque}
    first = {value.name: fx_node for fx_node, value in reversed(compared.items())}
    parts = Parts(model, [], torch.device("cpu"))
    places = {fx_node: parts.producers.get(parts.root(value.name)) for fx_node, value in compared.items()}
    run = LocalRun(parts, {}, [value.name for value in compared.values()])
    found = dict(stands)
    for name, fx_node in first.items():
        region = frozenset(run.nodes(name))
        reads = {read for i in region for read in parts.reads[i] if parts.producers.get(read) not in region}
        nodes = [node for node in map(parts.nodes.__getitem__, sorted(region)) if INSERTED not in metadata_of(node)]
        elsewhere: Container[str] = _Elsewhere(stands, places, region)
        if not reads - parts.constants.keys() <= _operands(calls[fx_node], stands):
            elsewhere = {other for other, value in stands.items() if value.name in reads}
        found[fx_node] = replace(
            stands[fx_node],
            nodes=tuple(map(node_name, nodes)),
            op_types=tuple(node.op_type for node in nodes),
            fused=_calls_to(calls[fx_node], elsewhere),
        )
    return found


def _operands(node: fx.Node, stands: Mapping[str, OnnxValue]) -> Set[str]:
    """The ONNX values of what the call reads."""
    names = [read.name for read in call_of(node).all_input_nodes]
    return {stands[name].name if name in stands else name for name in names}


@dataclass(frozen=True)
class _Elsewhere(Container[str]):
    """The FX nodes that have a value which no node of a region makes.

    ``places`` gives, of those that are compared, where in the model the node stands that makes the elements of the
    value; None where that is none, as of inputs.
    """

    stands: Mapping[str, OnnxValue]
    places: Mapping[str, int | None]
    region: frozenset[int]

    def __contains__(self, fx_node: object) -> bool:
        return fx_node in self.stands and self.places.get(str(fx_node)) not in self.region


def _calls_to(node: fx.Node, known: Container[str]) -> tuple[str, ...]:
    """The calls on the way from the FX nodes ``known`` to ``node``, and its own; none where there is no other."""
    own = call_of(node)
    others = [each.name for each in _of_tensors(chain_to(node, known)) if each not in (node, own)]
    return (*others, own.name) if others else ()


def _of_tensors(chain: list[fx.Node]) -> Iterator[fx.Node]:
    """The calls of a chain that make tensors, not those that take sizes, or one of several results."""
    made = (node for node in chain if isinstance(node.meta.get("val"), torch.Tensor | tuple | list))
    return (node for node in made if node.target is not operator.getitem)
