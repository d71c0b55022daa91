"""Views of inputs that a graph writes: AOTAutograd makes them anew, and asks the graph only where they lie."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import fx
from torch._functorch._aot_autograd.schemas import OutputType, ViewAndMutationMeta

from dort_compare.views import history

aten = torch.ops.aten
_RESHAPES = {
    *(aten.view.default, aten._unsafe_view.default, aten.alias.default, aten.detach.default),
    *(aten.unsqueeze.default, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims),
}


def show_inputs(graph_module: fx.GraphModule, metadata: ViewAndMutationMeta) -> None:
    """Has a forward or inference graph return, of an input that it writes, views of the input itself.

    What is to be written is a result of the graph; AOTAutograd copies it into the input and makes the views anew,
    where sizes are symbolic by the strides and the offset of what the graph returns for them. A view of what was
    computed has those of other memory: where the input is a part of a tensor, others' elements would be shown.
    """
    output = graph_module.graph.output_node()
    results: list[Any] = list(output.args[0])  # type: ignore[arg-type]
    inputs = graph_module.graph.find_nodes(op="placeholder")
    written = metadata.mutated_inp_runtime_indices
    if metadata.tokens or not any(isinstance(node.meta.get("val"), torch.SymInt) for node in inputs):
        return
    computed = dict(zip(written, results, strict=False))
    shown = {
        place: view
        for place, told in enumerate(metadata.output_info, len(written))
        if told.output_type == OutputType.alias_of_input and told.base_idx in computed
        if (view := _shown(results[place], computed[told.base_idx], inputs[told.base_idx])) is not None
    }
    if shown:
        output.args = (tuple(shown.get(place, each) for place, each in enumerate(results)),)
        graph_module.graph.eliminate_dead_code()
        graph_module.recompile()


def _shown(view: object, computed: object, given: fx.Node) -> fx.Node | None:
    """What shows of the input ``given`` the elements that ``view`` shows of what was ``computed`` for it; None where
    that is not known."""
    if not isinstance(view, fx.Node) or not isinstance(computed, fx.Node):
        return None
    if computed.meta["val"].shape == given.meta["val"].shape and (steps := _steps_between(computed, view)):
        return _of_another(given, computed, view, steps)
    if (source := _reshaped(view)) is not None and source is _reshaped(computed):
        nodes = (node for node in view.graph.nodes if node.op == "call_function" and _reshaped(node) is given)
        return next((node for node in nodes if node.meta["val"].shape == view.meta["val"].shape), None)
    return None


def _steps_between(first: fx.Node, last: fx.Node) -> list[fx.Node]:
    """The views that lead from one to the other, in order; none where they do not."""
    found: dict[fx.Node, None] = {}
    for step in sorted(history(last)[0]):
        if any(operand is first or operand in found for operand in step.all_input_nodes):
            found[step] = None
    return list(found) if last in found else []


def _of_another(given: fx.Node, computed: fx.Node, view: fx.Node, steps: Iterable[fx.Node]) -> fx.Node:
    """A copy of the ``steps`` from ``computed`` to ``view`` that starts at ``given``."""
    copies = {computed: given}
    with view.graph.inserting_before(view.graph.output_node()):
        for step in steps:
            copies[step] = view.graph.node_copy(step, lambda node: copies.get(node, node))
    return copies[view]


def _reshaped(node: fx.Node) -> fx.Node | None:
    """The tensor whose elements a node shows, all of them and in their order; None where it is no tensor."""
    while node.target in _RESHAPES:
        node = node.all_input_nodes[0]
    return node if isinstance(node.meta.get("val"), torch.Tensor) else None
