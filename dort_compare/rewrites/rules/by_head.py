"""Attention a head at a time, in a Scan: the scores of all heads take more memory than all else that it computes, and
have left the processor's cache when the next operation reads them.

Nothing is done where scores, or what becomes of them, are read elsewhere, as probabilities are that a backward graph
gets handed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence

import onnx_ir as ir

from dort_compare.rewrites.graph import ELEMENTWISE, is_product, sizes_of
from dort_compare.rewrites.scan import CUT, Scan

_RANK = CUT + 2
"""Of scores (B, H, L, S): a matrix for each head."""
_LARGE = 2**20
"""Elements of all scores from which on a Scan pays: 4 MiB of float32."""
_HUGE = 2**25
"""Elements from which on it pays for the memory alone, where fewer than three values are that large: 128 MiB."""
_TURN = 2**17
"""Elements of scores in one turn of a Scan, at least: some ten microseconds an operation are lost in each."""
_ALONG_AXES = {"ReduceMax", "ReduceSum", "Squeeze", "Unsqueeze"}


def by_head(model: ir.Model, node: ir.Node) -> str | None:
    """Puts all that is computed of the scores that ``node`` gives into a Scan; returns why not."""
    if node.graph is not model.graph:
        return "it is in a Scan already"
    sizes = sizes_of(node.outputs[0])
    if sizes is None or len(sizes) != _RANK:
        return "it gives no matrix for each of a known number of heads"
    if math.prod(sizes) < _LARGE:
        return f"its {math.prod(sizes)} elements are few"
    if any(math.prod(sizes_of(operand) or [0]) >= math.prod(sizes) for operand in node.inputs):
        return "its result is no larger than what it reads"
    region = _Region(model.graph, sizes)
    return region.grow(node) or _by_turns(region)


def _by_turns(region: _Region) -> str | None:
    """A turn for each head, or for each example where heads are small or share what belongs to their example."""
    examples, heads = region.heads
    by_example = [value for value in region.operands() if region.is_by_example(value)]
    width = heads if by_example or region.scores < _TURN else 1
    if width * region.scores < _TURN or width == examples * heads:
        return "the scores of an example are few, or there is but one"
    if region.passes < 3 and examples * heads * region.scores < _HUGE:
        return f"only {region.passes} values are as large as the scores"
    made = (value for node in region.nodes for value in node.outputs)
    pieces = (value for value in region.operands() if region.is_by_head(value))
    widths = dict.fromkeys((*pieces, *made), width) | dict.fromkeys(by_example, 1)
    Scan(region.graph, region.nodes, widths).take_place()
    return None


class _Region:
    """The nodes around values that are as large as the scores, none of which joins what heads have."""

    def __init__(self, graph: ir.Graph, scores: Sequence[int]) -> None:
        self.graph = graph
        self.heads, self.scores = [*scores[:CUT]], math.prod(scores[CUT:])
        self.nodes: dict[ir.Node, None] = {}
        self._size = math.prod(scores)

    def grow(self, product: ir.Node) -> str | None:
        """Takes in what becomes of the scores while it is large; returns why that does not make a Scan."""
        waiting = [product]
        while waiting:
            node = waiting.pop()
            if not self._goes_by_head(node):
                return f"{node.op_type}, of scores, does not go by head"
            if node not in self.nodes:
                self.nodes[node] = None
                waiting += [reader for v in node.outputs if self._is_large(v) for reader in v.consumers()]
                waiting += self._feeders()
        return self._fill() or self._why_not()

    def _feeders(self) -> list[ir.Node]:
        """What makes a large value, or turns a matrix, for nodes of the region alone."""
        makers = {value: value.producer() for value in self.operands() if not value.is_graph_output()}
        found = [made for v, made in makers.items() if made is not None and self._contains(v.consumers())]
        return [
            m for m in found if (m.op_type == "Transpose" or self._is_large(m.outputs[0])) and self._goes_by_head(m)
        ]

    def _fill(self) -> str | None:
        """Takes in what lies between nodes of the region."""
        places = {node: i for i, node in enumerate(self.graph)}
        first, last = (bound(places[node] for node in self.nodes) for bound in (min, max))
        behind = _reached(self.nodes, lambda node: [n for n in node.successors() if places.get(n, last) <= last])
        if not behind <= places.keys():
            return "what becomes of it is read in a graph within this one"
        ahead = _reached(self.nodes, lambda node: [n for n in node.predecessors() if places[n] >= first])
        for node in behind & ahead:
            if not self._goes_by_head(node):
                return f"{node.op_type}, on the way from scores to scores, does not go by head"
            self.nodes[node] = None
        return None

    def _why_not(self) -> str | None:
        for node in self.nodes:
            for value in node.outputs:
                if self._is_large(value) and (value.is_graph_output() or not self._contains(value.consumers())):
                    return f"{value.name}, as large as the scores, is read elsewhere"
        return None

    def operands(self) -> list[ir.Value]:
        """What the nodes read and do not make."""
        read = (value for node in self.nodes for value in node.inputs if value is not None)
        return [*dict.fromkeys(value for value in read if value.producer() not in self.nodes)]

    @property
    def passes(self) -> int:
        """How many values are made that are as large as the scores."""
        made = (value for node in self.nodes if node.op_type != "Identity" for value in node.outputs)
        return sum(map(self._is_large, made))

    def is_by_head(self, value: ir.Value) -> bool:
        """Whether each head has a part of its own: numbers for rows, (B, H, L), or a matrix. By its sizes alone; what
        reads it tells whether its leading axes are those."""
        sizes = sizes_of(value) or []
        return sizes[:CUT] == self.heads and CUT < len(sizes) <= _RANK

    def is_by_example(self, value: ir.Value) -> bool:
        """Whether each of several examples has a matrix that its heads share."""
        sizes = sizes_of(value) or []
        return len(sizes) == _RANK and sizes[:CUT] == [self.heads[0], 1] != [1, 1] and not self.is_by_head(value)

    def _is_matrix(self, value: ir.Value) -> bool:
        return self.is_by_head(value) and len(sizes_of(value) or []) == _RANK

    def _is_shared(self, value: ir.Value) -> bool:
        sizes = sizes_of(value)
        return sizes is not None and all(size == 1 for size in sizes[:-2]) and not self.is_by_head(value)

    def _is_large(self, value: ir.Value) -> bool:
        return math.prod(sizes_of(value) or [0]) >= self._size

    def _contains(self, nodes: Collection[ir.Node]) -> bool:
        return all(node in self.nodes for node in nodes)

    def _goes_by_head(self, node: ir.Node) -> bool:
        """Whether it computes for each head what it would if there were no other."""
        read = [value for value in node.inputs if value is not None]
        if not all(self.is_by_head(value) for value in node.outputs) or any(0 in (sizes_of(v) or []) for v in read):
            return False
        if node.op_type in _ALONG_AXES:
            return self.is_by_head(read[0]) and all(axis >= CUT for axis in _axes(node))
        matrices = all(self._is_matrix(value) for value in read)
        if node.op_type in {"Concat", "Softmax"}:
            return matrices and all(axis >= CUT for axis in _axes(node))
        if node.op_type == "Transpose":
            turned = node.attributes["perm"].as_ints() if "perm" in node.attributes else ()
            return matrices and [*turned[:CUT]] == [*range(CUT)]
        if is_product(node):
            return matrices and not any(name.startswith("transBatch") for name in node.attributes)
        fits = (self._is_matrix(v) or self.is_by_example(v) or self._is_shared(v) for v in read)
        return node.op_type in ELEMENTWISE and all(fits)


def _reached(nodes: Iterable[ir.Node], step: Callable[[ir.Node], Iterable[ir.Node]]) -> set[ir.Node]:
    found, waiting = set[ir.Node](), [*nodes]
    while waiting:
        further = {*step(waiting.pop())} - found
        found |= further
        waiting += further
    return found


def _axes(node: ir.Node) -> list[int]:
    """The axes that a node works along, counted from the front; [-1] where they are not known."""
    rank = len(sizes_of(node.outputs[0] if node.op_type == "Unsqueeze" else node.inputs[0]) or [])
    if "axis" in node.attributes:
        axes = [node.attributes["axis"].as_int()]
    elif len(node.inputs) > 1 and node.inputs[1] is not None and node.inputs[1].const_value is not None:
        axes = [int(axis) for axis in node.inputs[1].const_value.numpy().ravel()]
    else:
        return [-1]
    return [axis % rank for axis in axes]
