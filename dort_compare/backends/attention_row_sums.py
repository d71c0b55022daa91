"""Row sums of attention, rewritten while forward and backward are one graph, as neither alone knows enough."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import fx

from dort_compare.backends.calls import add_call
from dort_compare.views import memories

aten = torch.ops.aten

_WIDE = (torch.float32, torch.float64)
SAME_ELEMENTS = {aten.view.default, aten._unsafe_view.default, aten.detach.default, aten.alias.default,
                  aten.clone.default, aten.expand.default}  # fmt: skip
"""Operators that may change the shape, and nothing else."""
_TRANSPOSED: Mapping[Any, set[tuple[int, ...]]] = {
    aten.transpose.int: {(1, 2), (2, 1), (-1, -2), (-2, -1)},
    aten.permute.default: {(0, 2, 1)},
}


def row_sums_of_outputs(graph: fx.Graph) -> None:
    """Takes the row sums in the gradient of attention's softmax from what attention returns, not from all scores.

    Where ``O = P @ V`` and ``dP = dO @ V'``, the sums of ``P * dP`` over a row are those of ``dO * O``, as many times
    smaller as a head is narrower than there are keys (Dao et al., FlashAttention, 2022, appendix B.2). In half
    precision torch's kernel rounds once, and what stands here would at each step: there it stays. So it does where
    ``O`` is returned: the caller may write to it, for eager does not read it again.
    """
    returned = memories(graph.output_node().all_input_nodes)
    for node in graph.find_nodes(op="call_function", target=aten._softmax_backward_data.default):
        grad, probabilities, dim, dtype = node.args
        product, result = _source(grad), node.meta["val"]
        is_rounded_once = dtype not in _WIDE or grad.meta["val"].dtype != dtype
        if is_rounded_once or not _is_product(product) or dim not in (-1, result.ndim - 1):
            continue
        attended = _attended(product, _source(probabilities))
        if attended is None or attended.meta["val"].dtype != dtype:
            continue
        if returned.isdisjoint(memories([attended])):
            _replace(graph, node, product, attended)


def _source(node: fx.Node) -> fx.Node:
    """What holds the same elements in the same order, in matrices of the same size."""
    while node.target in SAME_ELEMENTS:
        before = node.all_input_nodes[0]
        if _matrices(before) is None or _matrices(before) != _matrices(node):
            return node
        node = before
    return node


def _matrices(node: fx.Node) -> tuple[Any, ...] | None:
    """How many elements there are, and how many in a row and a column; None where that is not known."""
    shape = node.meta["val"].shape
    known = all(isinstance(size, int) for size in shape) and len(shape) > 1
    return (shape.numel(), *shape[-2:]) if known else None


def _is_product(node: fx.Node) -> bool:
    return node.target is aten.bmm.default and _matrices(node) is not None


def _attended(product: fx.Node, probabilities: fx.Node) -> fx.Node | None:
    """``P @ V``, where ``product`` is a product with the transposed ``V``."""
    transposed = product.args[1]
    assert isinstance(transposed, fx.Node)
    if tuple(_flat(transposed.args[1:])) not in _TRANSPOSED.get(transposed.target, ()):
        return None
    values = transposed.args[0]
    assert isinstance(values, fx.Node)
    users = (user for user in values.users if _is_product(user) and user.args[1] is values)
    return next((user for user in users if _source(user.args[0]) is probabilities), None)  # type: ignore[arg-type]


def _flat(arguments: tuple[Any, ...]) -> Iterator[Any]:
    for argument in arguments:
        yield from argument if isinstance(argument, (list, tuple)) else (argument,)


def _replace(graph: fx.Graph, node: fx.Node, product: fx.Node, attended: fx.Node) -> None:
    call = functools.partial(add_call, graph, node)
    with graph.inserting_before(node):
        sums = call(aten.sum.dim_IntList, call(aten.mul.Tensor, product.args[0], attended), [-1], True)
        lowered = call(aten.view.default, call(aten.sub.Tensor, product, sums), [*node.meta["val"].shape])
        node.replace_all_uses_with(call(aten.mul.Tensor, node.args[1], lowered))
    graph.erase_node(node)
