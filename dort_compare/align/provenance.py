"""Pairs by what lowerings wrote into the metadata: the ONNX value that stands for an FX node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import onnx

from dort_compare import provenance
from dort_compare.captures import reads_of
from dort_compare.provenance import Provenance
from dort_compare.trace.casts import computing


@dataclass(frozen=True)
class OnnxValue:
    """An ONNX value that stands for an FX node, and the ONNX nodes that were made for it, in order.

    Where an optimizer has put them in the place of others, ``fused`` holds all the FX nodes that those were made for.
    ``held_in`` is the coarser dtype that a converted model holds it in, whatever dtype it is cast to.
    """

    name: str
    provenance: Provenance
    op_types: tuple[str, ...]
    nodes: tuple[str, ...]
    computed_in: str | None
    opaque: str | None = None
    held_in: str | None = None
    fused: tuple[str, ...] = ()

    @property
    def rounds_between(self) -> bool:
        """Whether several nodes make the value that may round to its dtype on their way: those that compute in no wider
        one, or have casts between them."""
        places = computing(self.op_types)
        if len(places) < 2:
            return False
        between = self.op_types[places[0] : places[-1]]
        return self.computed_in is None or any(op_type.startswith("Cast") for op_type in between)


def values_of_fx_nodes(model: onnx.ModelProto) -> Mapping[str, OnnxValue]:
    """By FX node name, the value of ``model`` that stands for it. A value of several FX nodes is found under each."""
    graph = model.graph
    described = [(value.name, provenance.metadata_of(value)) for value in (*graph.value_info, *graph.output)]
    stands = {name: (metadata, origin) for name, metadata in described if (origin := Provenance.read(metadata))}
    makers = _Makers(graph.node, {name: set(origin.fx_node.split()) for name, (_, origin) in stands.items()})
    found: dict[str, OnnxValue] = {}
    for name, (metadata, origin) in stands.items():
        if name not in makers.producers:
            continue
        for fx_node in origin.fx_node.split():
            made = makers.of(fx_node, name)
            found[fx_node] = OnnxValue(
                name=name,
                provenance=origin,
                op_types=tuple(node.op_type for node in made),
                nodes=tuple(node_name(node) for node in made),
                computed_in=metadata.get(provenance.COMPUTED_IN),
                opaque=metadata.get(provenance.OPAQUE),
                held_in=metadata.get(provenance.HELD_IN),
            )
    return found


def node_name(node: onnx.NodeProto) -> str:
    """The name of an ONNX node; of one that has none, its operator and its first result."""
    return node.name or " ".join([node.op_type, *filter(None, node.output)][:2])


class _Makers:
    """Which nodes of a graph were made for an FX node; ``stands`` gives, by value, the FX nodes that it stands for."""

    def __init__(self, nodes: Sequence[onnx.NodeProto], stands: Mapping[str, Set[str]]) -> None:
        self._nodes = list(nodes)
        self._stands = stands
        self._shown = set().union(*stands.values())
        self._fx_nodes = [set(provenance.metadata_of(node).get(provenance.FX_NODE, "").split()) for node in nodes]
        self.producers = {name: i for i, node in enumerate(nodes) for name in node.output if name}
        self._made_for: dict[str, list[int]] = {}
        for i, fx_nodes in enumerate(self._fx_nodes):
            for fx_node in fx_nodes:
                self._made_for.setdefault(fx_node, []).append(i)

    def of(self, fx_node: str, value: str) -> list[onnx.NodeProto]:
        """In order, the nodes that say that they were made for ``fx_node``, and those of its call that lead to its
        ``value``, which may be one of several results."""
        made = {*self._made_for.get(fx_node, ()), *self._leading_to(value)}
        return [self._nodes[i] for i in sorted(made)]

    def _leading_to(self, value: str) -> set[int]:
        found, waiting = set[int](), {self.producers[value]}
        while waiting:
            node = waiting.pop()
            found.add(node)
            read = (name for name in reads_of(self._nodes[node]) if name in self.producers)
            waiting |= {self.producers[name] for name in read if self._is_of_the_call_of(node, name)} - found
        return found

    def _is_of_the_call_of(self, reader: int, name: str) -> bool:
        """Whether what ``reader`` reads by that name was made for the same FX node, or for one that no value stands
        for, as for complex ones; which a node need not say of what stands for none."""
        ahead, behind = self._fx_nodes[self.producers[name]], self._fx_nodes[reader]
        return bool(ahead & behind) or (name not in self._stands and (not behind or ahead.isdisjoint(self._shown)))
