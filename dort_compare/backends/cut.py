"""Cuts a graph of which some nodes run in eager torch, or that is to run in parts: everything else is gathered in as
few pieces as can be.

A node stands on the level of what it reads where both run in the same place, and one above where they do not: even
levels run in ONNX Runtime, odd ones in torch, and one even level is one piece. It takes time linear in the graph;
torch's CapabilityBasedPartitioner takes quadratic time (benchmarks/compile_time.py).
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import torch
from torch import fx

from dort_compare.backends.calls import has_effect
from dort_compare.backends.levels import assembled, is_light
from dort_compare.checks import check_of
from dort_compare.fx_graph import call_of
from dort_compare.views import history, moves_nothing


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
    return assembled(graph_module, _levels(nodes, outside, parts), outside)


def _with_their_memory(refused: Iterable[fx.Node]) -> set[fx.Node]:
    """The refused nodes, with the views that lead to those that read strides."""
    outside = set(refused)
    waiting = [node for node in outside if "as_strided" in str(node.target)]
    while waiting:
        views = {node for node in waiting.pop().all_input_nodes if node.op == "call_function" and moves_nothing(node)}
        waiting.extend(views - outside)
        outside |= views
    return outside


def _expanded(refused: Iterable[fx.Node]) -> set[fx.Node]:
    """The views that lead from what the graph takes to what is expanded for refused nodes."""
    expanded = (o for node in refused for o in node.all_input_nodes if o.target is torch.ops.aten.expand.default)
    histories = map(history, expanded)
    return {step for steps, sources in histories if all(map(_is_given, sources)) for step in steps}


def _is_given(node: fx.Node) -> bool:
    return node.op in ("placeholder", "get_attr")


# Levels.


def _levels(nodes: Sequence[fx.Node], refused: set[fx.Node], parts: Mapping[fx.Node, int]) -> dict[fx.Node, int]:
    """The level of every node; what the graph takes stands below all, and what of it is expanded, the output above all.

    A part of the graph begins above all levels of the one before, on one of ONNX Runtime's. Its calls stay in it: what
    waited for its reader would keep what it reads.
    """
    below = _expanded(refused)
    in_torch = refused | below
    levels: dict[fx.Node, int] = {}
    floors = {0: 0}
    last: dict[str, fx.Node] = {}
    for node in nodes:
        if _is_given(node) or node in below:
            levels[node] = -1
            continue
        part = parts.get(node, 0)
        if part not in floors:
            floors[part] = 2 * (max(levels.values()) // 2 + 1)
        read = [operand for operand in node.all_input_nodes if levels[operand] >= 0]
        if call_of(node) in refused or (is_light(node) and any(operand in in_torch for operand in read)):
            in_torch.add(node)
        if kind := _kept_in_order(node, refused):
            read += [last[kind]] if kind in last else []
            last[kind] = node
        parity = node in in_torch
        above = (levels[each] + ((each in in_torch) != parity) for each in read)
        levels[node] = max([floors[part] + parity, *above])
    levels[nodes[-1]] = max(levels.values()) + 1
    if not parts:
        _postpone(nodes, levels, in_torch)
    return levels


def _kept_in_order(node: fx.Node, refused: set[fx.Node]) -> str | None:
    """Among which nodes a node keeps its place: refused ones with effects, or checks, of which the first one raises."""
    if node in refused and has_effect(node):
        return "effect"
    return "check" if check_of(node) else None


def _postpone(nodes: Sequence[fx.Node], levels: dict[fx.Node, int], in_torch: set[fx.Node]) -> None:
    """Moves what depends on the graph's inputs alone to the piece that reads it: its value is not kept till then.

    A backward graph has much of it: derivatives of activations that a later part of the graph multiplies.
    """
    movable: dict[fx.Node, None] = {}
    for node in nodes:
        is_early = all(levels[operand] < 0 or operand in movable for operand in node.all_input_nodes)
        if node.op == "call_function" and node not in in_torch and is_early:
            movable[node] = None
    for node in reversed(movable):
        if node.target is operator.getitem:
            continue
        results = [user for user in node.users if user.target is operator.getitem and user in movable]
        readers = [reader for each in (node, *results) for reader in each.users if reader not in results]
        latest = [levels[reader] - (reader in in_torch) for reader in readers if reader.op != "output"]
        for each in (node, *results):
            levels[each] = min(latest, default=levels[each])
