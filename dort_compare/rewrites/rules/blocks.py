"""Attention in blocks of queries, each of which reads the keys that a mask shows to any of them, and no others: about
half of all where each query sees what came before it, few where it sees what is near.

A Scan over heads (`by_head`) does for each block what it did for all queries. What the blocks add to the gradients of
keys and values is summed up. What is hidden and not finite is not met: in torch it makes NaN of other rows too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from dort_compare.rewrites.axes import COLUMNS, ROWS, Axes, Axis
from dort_compare.rewrites.graph import sizes_of, take_place, typed
from dort_compare.rewrites.hidden import Mask, mask_among, why_it_matters
from dort_compare.rewrites.known import known
from dort_compare.rewrites.writer import Writer

_QUERIES = 256
"""In a block, at least."""
_BLOCKS = 8
"""At most: each copies its part of what the keys get."""
_MOST = 0.9
"""The share of all scores that blocks may have, to pay for what is copied."""
Span = Mapping[Axis | None, range]
"""The queries of a block, and the keys that it reads."""


def in_blocks(model: ir.Model, node: ir.Node) -> str | None:
    """Cuts what a Scan does in blocks; returns why not."""
    body = node.attributes["body"].as_graph()
    if node.attributes["num_scan_inputs"].as_int() != len(node.inputs):
        return "its turns hand something on"
    nodes, given = [*body], dict(zip(body.inputs, node.inputs, strict=True))
    axes = Axes(nodes)
    if axes.unknown:
        return f"of {axes.unknown} it is not known what its axes are"
    mask = mask_among(nodes, axes, lambda value: known(given.get(value) or value))
    if mask is None:
        return "no mask that is always the same hides anything"
    refused = why_it_matters(nodes, axes, mask) or _why_not(body, axes, mask)
    if refused:
        return refused
    spans = [*_spans(mask)]
    if sum(len(span[mask.queries]) * len(span[mask.keys]) for span in spans) > _MOST * mask.seen.size:
        return "its mask hides little from blocks of queries"
    _Blocks(model, node, axes, mask).take_place(spans)
    return None


def _spans(mask: Mask) -> Iterator[Span]:
    number = len(mask.seen)
    width = max(_QUERIES, -(-number // _BLOCKS))
    for start in range(0, number, width):
        queries = range(start, min(start + width, number))
        keys = np.flatnonzero(mask.seen[queries.start : queries.stop].any(axis=0))
        yield {mask.queries: queries, mask.keys: range(int(keys[0]), int(keys[-1]) + 1)}


def _why_not(body: ir.Graph, axes: Axes, mask: Mask) -> str | None:
    """What keeps the results of blocks from being put together."""
    for node in body:
        result = node.outputs[0]
        matrices = [[axes.of_operand(node, i, axis) for axis in (ROWS, COLUMNS)] for i in range(len(node.inputs))]
        for rows, columns in (*matrices, [axes.of(result, axis) for axis in (ROWS, COLUMNS)]):
            if rows == columns and rows in {mask.queries, mask.keys}:
                return f"{node.op_type} has to do with pairs of queries, or of keys"
        is_sum = _sums_queries(node, axes, mask)
        if is_sum and result.consumers():
            return f"the sum over queries that {node.op_type} gives is read in the same turn"
        along = {axes.of(result, axis) for axis in (ROWS, COLUMNS)}
        if result.is_graph_output() and (along >= {mask.queries, mask.keys} or not (is_sum or mask.queries in along)):
            return f"{node.op_type} returns all scores, or nothing of queries"
    return None


def _axis_along(what: Axis, value: ir.Value, axes: Axes) -> int | None:
    return next((axis for axis in (ROWS, COLUMNS) if axes.of(value, axis) == what), None)


def _sums_queries(node: ir.Node, axes: Axes, mask: Mask) -> bool:
    read = {axes.of_operand(node, i, axis) for i in range(len(node.inputs)) for axis in (ROWS, COLUMNS)}
    return mask.queries in read and _axis_along(mask.queries, node.outputs[0], axes) is None


def _matrix(value: ir.Value) -> list[int]:
    return (sizes_of(value) or [])[-2:]


def _like(node: ir.Node, operands: Sequence[ir.Value | None], result: ir.Value) -> ir.Node:
    """A node that does the same of other operands."""
    attributes, metadata = node.attributes.values(), node.metadata_props
    return ir.Node(node.domain, node.op_type, operands, attributes, outputs=[result], metadata_props=metadata,
                   name=f"{node.name}.{result.name}")  # fmt: skip


class _Blocks:
    """The nodes of a Scan's body, once for each block."""

    def __init__(self, model: ir.Model, scan: ir.Node, axes: Axes, mask: Mask) -> None:
        self._graph, self._scan, self._axes, self._mask = model.graph, scan, axes, mask
        self._body = scan.attributes["body"].as_graph()
        self._nodes = [*self._body]
        self._new, self._ahead = (Writer(f"{scan.name}.{where}", scan.metadata_props) for where in ("blocks", "ahead"))
        self._cut: dict[tuple[ir.Value, int, range], ir.Value] = {}

    def take_place(self, spans: Sequence[Span]) -> None:
        """Lets the body go through blocks; what all turns read is cut ahead of the Scan."""
        parts = [self._block(span, f"block{i}") for i, span in enumerate(spans)]
        for value in [*self._body.outputs]:
            take_place(self._joined(value, [part[value] for part in parts], spans), value)
        self._body.extend(self._new.nodes)
        self._body.remove(reversed(self._nodes), safe=True)
        self._graph.insert_before(self._scan, self._ahead.nodes)

    def _block(self, span: Span, name: str) -> dict[ir.Value, ir.Value]:
        """What a block has of each value that the body makes."""
        made: dict[ir.Value, ir.Value] = {}
        for node in self._nodes:
            whole = node.outputs[0]
            along = [self._axes.of(whole, axis) for axis in (ROWS, COLUMNS)]
            sizes = [len(span[one]) if one in span else size for one, size in zip(along, _matrix(whole), strict=True)]
            shape = ir.Shape([*(sizes_of(whole) or [])[:-2], *sizes])
            part = ir.Value(name=f"{whole.name}.{name}", shape=shape, type=whole.type)
            operands = [made.get(v) or self._piece(node, i, span) if v else None for i, v in enumerate(node.inputs)]
            self._new.nodes.append(_like(node, operands, part))
            made[whole] = part
        return made

    def _piece(self, node: ir.Node, place: int, span: Span) -> ir.Value | None:
        """What a block reads of an operand that the body does not make."""
        value = node.inputs[place]
        writer = self._new if value in self._body.inputs else self._ahead
        for axis in (ROWS, COLUMNS):
            along = self._axes.of_operand(node, place, axis)
            if value is not None and along in span:
                value = self._sliced(writer, value, axis, span[along])
        return value

    def _sliced(self, writer: Writer, value: ir.Value, axis: int, part: range) -> ir.Value:
        sizes = sizes_of(value) or []
        if len(part) == sizes[axis]:
            return value
        if (value, axis, part) not in self._cut:
            sizes[axis] = len(part)
            bounds = (writer.integers([number]) for number in (part.start, part.stop, axis))
            self._cut[value, axis, part] = typed(writer.write("Slice", value, *bounds), sizes, value)
        return self._cut[value, axis, part]

    def _joined(self, value: ir.Value, parts: Sequence[ir.Value], spans: Sequence[Span]) -> ir.Value:
        """The whole of a result."""
        axis = _axis_along(self._mask.queries, value, self._axes)
        if axis is not None:
            return self._new.write("Concat", *parts, axis=axis)
        axis = _axis_along(self._mask.keys, value, self._axes)
        if axis is not None:
            sizes, keys = sizes_of(value) or [], (span[self._mask.keys] for span in spans)
            parts = [self._padded(part, axis, sizes, some) for part, some in zip(parts, keys, strict=True)]
        return self._new.write("Sum", *parts)

    def _padded(self, part: ir.Value, axis: int, sizes: Sequence[int], keys: range) -> ir.Value:
        """The part with zeros for the keys that it does not have."""
        if len(keys) == sizes[axis]:
            return part
        pads = [0] * 2 * len(sizes)
        pads[len(sizes) + axis], pads[axis] = keys.start, sizes[axis] - keys.stop
        return typed(self._new.write("Pad", part, self._new.integers(pads)), sizes, part)
