"""The levels of a graph of which some nodes run in eager torch, or that is to run in parts.

Every node has a level, and nothing reads from a level above its own, so that the order of the levels is an order of
execution; what the graph takes stands below all, at -1, its output above all. A node stands on the level of what it
reads where both run in the same place, and one above where they do not: even levels run in ONNX Runtime, odd ones in
torch, and one even level is one piece.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import fx

from dort_compare.backends.calls import has_effect
from dort_compare.checks import check_of
from dort_compare.fx_graph import call_of
from dort_compare.views import history, moves_nothing


def levels_of(nodes: Sequence[fx.Node], refused: set[fx.Node], parts: Mapping[fx.Node, int]) -> dict[fx.Node, int]:
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


def is_light(node: fx.Node) -> bool:
    """Whether a node costs next to nothing: a view, arithmetic on numbers, a check."""
    return moves_nothing(node) or check_of(node) is not None


def _expanded(refused: Iterable[fx.Node]) -> set[fx.Node]:
    """The views that lead from what the graph takes to what is expanded for refused nodes."""
    expanded = (o for node in refused for o in node.all_input_nodes if o.target is torch.ops.aten.expand.default)
    histories = map(history, expanded)
    return {step for steps, sources in histories if all(map(_is_given, sources)) for step in steps}


def _is_given(node: fx.Node) -> bool:
    return node.op in ("placeholder", "get_attr")


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
