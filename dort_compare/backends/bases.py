"""Has a backward graph make the views that it reads, where the memory of one is not as a session takes it.

A session takes contiguous tensors: of a saved activation that is a transposed view or a part of another, torch would
make a copy in each step. A view in the graph is folded into what reads it, or made by a kernel of ONNX Runtime, whose
memory is there already.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from dort_compare.signature import layout_of
from dort_compare.views import history

aten = torch.ops.aten
_VIEWS = {aten.view.default, aten.expand.default, aten.permute.default, aten.transpose.int, aten.t.default,
          aten.unsqueeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.select.int, aten.slice.Tensor,
          aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int, aten.detach.default, aten.alias.default,
          operator.getitem}  # fmt: skip

Views = Mapping[fx.Node, Sequence[fx.Node]]


def save_bases(forward: fx.GraphModule, backward: fx.GraphModule, num_fwd_outputs: int) -> None:
    """Saves what views are of in their place, which is in memory as long as they are; ``backward`` makes the views.

    What torch lays out in another order than that of its dimensions is saved in the order of its memory.
    ``num_fwd_outputs`` counts the outputs of ``forward`` before those that it saves.
    """
    output = forward.graph.output_node()
    results: list[Any] = list(output.args[0])  # type: ignore[arg-type]
    returned, saved = results[:num_fwd_outputs], results[num_fwd_outputs:]
    views = dict(_views_to_make(saved, _sources(returned)))
    dense = {base: _in_order_of_memory(base, output) for base in views}
    instead = {view: dense[base] for base, made in views.items() for view in made}
    kept: dict[fx.Node, int] = {}
    for place, node in enumerate(saved, num_fwd_outputs):
        if node not in instead or instead[node] not in saved:
            kept.setdefault(instead.get(node, node), place)
    output.args = ((*returned, *kept),)
    if told := output.meta.get("desc"):
        output.meta["desc"] = [*told[:num_fwd_outputs], *(told[place] for place in kept.values())]
    for base, made in views.items():
        _make_views(backward.graph, base, dense[base], made)
    forward.recompile()
    backward.recompile()


# Which.


def _views_to_make(saved: Sequence[fx.Node], returned: Collection[fx.Node]) -> Iterator[tuple[fx.Node, list[fx.Node]]]:
    """What is to be saved, with the saved views of it that the backward graph is to make; ``returned`` is not free."""
    found: dict[fx.Node, list[fx.Node]] = defaultdict(list)
    for node in saved:
        if _is_known(node):
            steps, sources = history(node)
            if len(sources) == 1 and _is_known(sources[0]) and all(step.target in _VIEWS for step in steps):
                found[sources[0]].append(node)
    for base, nodes in found.items():
        views = [node for node in nodes if not node.meta["val"].is_contiguous()]
        if not views:
            continue
        if base.meta["val"].is_contiguous():
            yield base, views
        elif base.op == "call_function" and base not in returned and layout_of(base.meta["val"]):
            yield base, nodes


def _is_known(node: fx.Node) -> bool:
    """Whether a node is a tensor of known sizes, which autograd may watch."""
    value = node.meta.get("val")
    is_static = isinstance(value, torch.Tensor) and all(isinstance(size, int) for size in value.shape)
    return is_static and not node.meta.get("saved_tensor_with_no_vc_check")


def _sources(values: Sequence[Any]) -> set[fx.Node]:
    return {source for value in values if isinstance(value, fx.Node) for source in history(value)[1]}


# How.


def _in_order_of_memory(base: fx.Node, output: fx.Node) -> fx.Node:
    """The contiguous tensor with the elements of ``base`` as they are in memory, computed before ``output``."""
    if base.meta["val"].is_contiguous():
        return base
    with base.graph.inserting_before(output):
        permuted = _call(base, aten.permute.default, base, layout_of(base.meta["val"]))
        return _call(base, aten.clone.default, permuted)


def _make_views(graph: fx.Graph, base: fx.Node, dense: fx.Node, views: Sequence[fx.Node]) -> None:
    """Has ``graph`` take ``dense`` for ``views`` of ``base``, and make them where the first of them is read."""
    given = {node.name: node for node in graph.find_nodes(op="placeholder")}
    taken = [given[view.name] for view in views]
    if dense.name not in given:
        with graph.inserting_before(taken[0]):
            given[dense.name] = graph.placeholder(dense.name)
        given[dense.name].meta = dict(dense.meta)
    copies = {dense: given[dense.name]}
    with graph.inserting_before(min(user for node in taken for user in node.users)):
        if base is not dense:
            order = layout_of(base.meta["val"])
            assert order is not None
            inverse = [order.index(dim) for dim in range(len(order))]
            copies[base] = _call(base, aten.permute.default, copies[dense], inverse)
        for step in sorted(set().union(*(history(view)[0] for view in views))):
            copies[step] = graph.node_copy(step, copies.__getitem__)
    for node, view in zip(taken, views, strict=True):
        node.replace_all_uses_with(copies[view])
        graph.erase_node(node)


def _call(origin: fx.Node, target: Any, operand: fx.Node, *args: Any) -> fx.Node:
    """A call in the graph of ``operand`` that stems from where ``origin`` does."""
    made = operand.graph.call_function(target, (operand, *args))
    with torch.no_grad():
        made.meta = {**origin.meta, "val": target(operand.meta["val"], *args)}
    made.meta.pop("tensor_meta", None)
    return made
