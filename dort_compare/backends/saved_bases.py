"""Has a backward graph make the views that it reads, where the memory of one is not as a session takes it.

A session takes contiguous tensors: of a saved activation that is a transposed view or a part of another, torch would
make a copy in each step, in memory that is new each time. A view in the graph is folded into what reads it, or made by
a kernel of ONNX Runtime, in memory of its arena.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

import torch
from torch import fx

from dort_compare.backends.calls import add_call
from dort_compare.backends.views_to_make import views_to_make
from dort_compare.layouts import inverse, layout_of
from dort_compare.views import history

aten = torch.ops.aten


def save_bases(forward: fx.GraphModule, backward: fx.GraphModule, num_fwd_outputs: int) -> None:
    """Saves what views are of in their place, which is in memory as long as they are; ``backward`` makes the views.

    What torch lays out in another order than that of its dimensions is saved in the order of its memory. Sizes must be
    known. ``num_fwd_outputs`` counts the outputs of ``forward`` before those that it saves.
    """
    output = forward.graph.output_node()
    results: list[Any] = list(output.args[0])  # type: ignore[arg-type]
    returned, saved = results[:num_fwd_outputs], results[num_fwd_outputs:]
    named = {node.name: node for node in backward.graph.find_nodes(op="placeholder") if node.users}
    placeholders = {node: named[node.name] for node in saved if node.name in named}
    instead: dict[fx.Node, fx.Node] = {}
    for base, views in list(views_to_make(saved, returned, placeholders)):
        dense = _in_order_of_memory(base, output)
        instead |= dict.fromkeys(views, dense)
        if dense not in placeholders:
            placeholders[dense] = _placeholder(dense, placeholders[views[0]])
        _make_views(base, views, placeholders, dense)
    if not instead:
        return
    own, kept = set(saved), dict[fx.Node, int]()
    for place, node in enumerate(saved, num_fwd_outputs):
        if node not in instead or instead[node] not in own:
            kept.setdefault(instead.get(node, node), place)
    output.args = ((*returned, *kept),)
    if told := output.meta.get("desc"):
        output.meta["desc"] = [*told[:num_fwd_outputs], *(told[place] for place in kept.values())]
    forward.graph.eliminate_dead_code()
    forward.recompile()
    backward.recompile()


def _in_order_of_memory(base: fx.Node, output: fx.Node) -> fx.Node:
    """The contiguous tensor with the elements of ``base`` as they are in memory, computed before ``output``."""
    if base.meta["val"].is_contiguous():
        return base
    with base.graph.inserting_before(output):
        permuted = add_call(base.graph, base, aten.permute.default, base, layout_of(base.meta["val"]))
        return add_call(base.graph, base, aten.clone.default, permuted)


def _placeholder(node: fx.Node, before: fx.Node) -> fx.Node:
    with before.graph.inserting_before(before):
        made = before.graph.placeholder(node.name)
    made.meta = dict(node.meta)
    return made


def _make_views(
    base: fx.Node, views: Sequence[fx.Node], placeholders: MutableMapping[fx.Node, fx.Node], dense: fx.Node
) -> None:
    """Makes ``views`` of ``base`` from the placeholder of ``dense``, each where it is first read."""
    copies = {dense: placeholders[dense]}
    taken = {view: placeholders.pop(view) for view in views}
    for view, node in sorted(taken.items(), key=lambda pair: min(pair[1].users)):
        graph = node.graph
        with graph.inserting_before(min(node.users)):
            if base not in copies:
                order = [*inverse(layout_of(base.meta["val"]) or ())]
                copies[base] = add_call(graph, base, aten.permute.default, copies[dense], order)
            for step in sorted(history(view)[0] - copies.keys()):
                copies[step] = graph.node_copy(step, copies.__getitem__)
        node.replace_all_uses_with(copies[view])
        graph.erase_node(node)
