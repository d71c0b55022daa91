"""Divides a backward graph into parts, so that it frees as it runs what the forward graph has saved for it.

A session holds its inputs until it ends: one session for a whole backward graph holds every saved activation, beside
every gradient, to the last. The graph is in autograd's order, which reads the activations of the last layer first, and
so a cut anywhere lets go of all that only the nodes before it read.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

import torch
from torch import fx

from dort_compare.layouts import elements

_MOST = 8
"""Parts: an eighth of what is saved stays until the next cut."""
_LEAST = 8 << 20
"""Bytes that a part is to free."""


def parts(graph_module: fx.GraphModule) -> Mapping[fx.Node, int]:
    """The calls of a graph by the number of the part that they belong to, each of which frees about as much as another.

    Empty where the graph has too little to free. The cuts are where the least is handed on from part to part, and no
    more than a part frees: what is handed on cannot be computed in place. Where much is handed on all the way, as the
    gradient of weights that the last layer and the first one share, the parts are fewer and free more each.
    """
    nodes = list(graph_module.graph.nodes)
    places = _places(nodes)
    ends = _ends(nodes, places)
    return {node: bisect_left(ends, place) for node, place in places.items()} if ends else {}


def _places(nodes: Sequence[fx.Node]) -> Mapping[fx.Node, int]:
    """The calls in order, by number; a result of a call stands where the call does."""
    places: dict[fx.Node, int] = {}
    for i, node in enumerate(nodes):
        if node.op == "call_function":
            places[node] = places.get(node.args[0], i) if node.target is operator.getitem else i  # type: ignore[arg-type]
    return places


def _ends(nodes: Sequence[fx.Node], places: Mapping[fx.Node, int]) -> list[int]:
    """The places after which to cut: as many as there can be."""
    freed, handed = Counter[int](), Counter[int]()
    for node in nodes:
        last = max((places[user] for user in node.users if user in places), default=-1)
        if node in places and last > places[node]:
            handed[places[node]] += _nbytes(node)
            handed[last] -= _nbytes(node)
        elif node.op == "placeholder" and last >= 0 and not node.name.startswith("primals"):  # those outlive the graph
            freed[last] += _nbytes(node)
    until, across = ([*accumulate(each[i] for i in range(len(nodes)))] for each in (freed, handed))
    most = min(_MOST, freed.total() // _LEAST)
    ways = ([*_even_cuts(parts, sorted({*places.values()}), until, across)] for parts in range(most, 1, -1))
    return max(ways, key=len, default=[])


def _even_cuts(parts: int, places: Sequence[int], until: Sequence[int], across: Sequence[int]) -> Iterator[int]:
    """The places where so many parts of about the same size end, but for those that hand on more than a part frees.

    ``until`` and ``across`` are bytes by place: all that is freed up to it, and what is handed on behind it.
    """
    total = until[-1]
    for number in range(1, parts):
        off = {i: abs(until[i] * parts / total - number) for i in places}
        if near := [i for i in places if off[i] < 0.5 and across[i] * parts <= total]:
            yield min(near, key=lambda i: (across[i], off[i]))


def _nbytes(node: fx.Node) -> int:
    """Of the tensor that a node stands for, as large as it was when it was traced; 0 of what is none."""
    value = node.meta.get("val")
    return (elements(value) or 0) * value.element_size() if isinstance(value, torch.Tensor) else 0
