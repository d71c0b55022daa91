"""Cuts a graph of which some nodes run in eager torch, or that is to run in parts: everything else is gathered in as
few pieces as can be.

It takes time linear in the graph; torch's CapabilityBasedPartitioner takes quadratic time (benchmarks/compile_time.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from torch import fx

from dort_compare.backends.assembly import assembled
from dort_compare.backends.levels import levels_of
from dort_compare.views import moves_nothing


def split_graph(
    graph_module: fx.GraphModule, refused: Mapping[str, str], parts: Mapping[fx.Node, int] = MappingProxyType({})
) -> fx.GraphModule:
    """A copy of the graph in which everything but the calls named in ``refused`` is gathered in submodules.

    ``parts`` numbers calls, in order, by parts of the graph that have no piece in common; empty where it is one.

    Views, arithmetic on sizes and checks alone stay with the refused nodes in torch, and so does what leads to an
    ``as_strided`` there, which reads memory rather than values. An input that is expanded for a refused node, as an
    index is for all elements of a row, is expanded by torch, which repeats no element in memory. Refused nodes with
    side effects, random ones above all, keep their order, and so do checks.
    """
    nodes = list(graph_module.graph.nodes)
    outside = _with_their_memory(node for node in nodes if node.name in refused)
    return assembled(graph_module, levels_of(nodes, outside, parts), outside)


def _with_their_memory(refused: Iterable[fx.Node]) -> set[fx.Node]:
    """The refused nodes, with the views that lead to those that read strides."""
    outside = set(refused)
    waiting = [node for node in outside if "as_strided" in str(node.target)]
    while waiting:
        views = {node for node in waiting.pop().all_input_nodes if node.op == "call_function" and moves_nothing(node)}
        waiting.extend(views - outside)
        outside |= views
    return outside
