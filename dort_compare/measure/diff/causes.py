"""A value of the second model that departs by itself, what makes it, and how that differs from the first model's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from dort_compare.align.expressions import attributes_in_full, is_default, named_operands
from dort_compare.align.sides import Side
from dort_compare.measure.diff.value_rows import ValueRow
from dort_compare.trace.dataflow import Dataflow, Node

_USUAL = {"dilations": 1, "output_padding": 0, "pads": 0, "strides": 1}
"""By attribute, the number of which all of its are where it is left out, although no schema says so."""


@dataclass(frozen=True)
class Operand:
    """What the node of a departing value reads: the second model's name, its partner, and what the first model's node
    reads in that position; "" where there is none."""

    name: str
    partner: str
    expected: str
    status: str


@dataclass(frozen=True)
class Cause:
    """A value that departs on the first model's operands. ``nodes``: by model, the nodes that make it."""

    row: ValueRow
    nodes: tuple[tuple[str, ...], tuple[str, ...]]
    operands: tuple[Operand, ...]
    reason: str

    def to_json(self) -> dict[str, Any]:
        return {
            **self.row.to_json(),
            "nodes": [list(names) for names in self.nodes],
            "operands": [vars(operand) for operand in self.operands],
            "reason": self.reason,
        }


def cause_of(first: Side, second: Side, row: ValueRow, rows: Mapping[str, ValueRow]) -> Cause:
    """The cause that a value is; ``rows`` are those of the main pairs, by value of the second model."""
    node, mine = first.node(row.pair.first), second.node(row.pair.second)
    paired = {r.pair.first for r in rows.values()}
    steps = tuple(_steps(first, row.pair.first, paired)), tuple(_steps(second, row.pair.second, rows.keys()))
    operands = tuple(_operands(node, mine, rows)) if mine else ()
    differences = _differences(first, second, node, mine, operands)
    reason = "; ".join([_size(row), *differences])
    if row.pair.how == "returned" and row.pair.second in rows:
        held = rows[row.pair.second].pair.first
        reason = f"output {row.pair.second!r} of {second.flow.title} holds {held!r} of {first.flow.title}; {reason}"
    return Cause(row, (node_labels(steps[0]), node_labels(steps[1])), operands, reason)


def _steps(side: Side, name: str, paired: Iterable[str]) -> list[Node]:
    """The nodes that make a value out of paired ones."""
    known, todo, found = set(paired), [name], {}
    while todo:
        node = side.node(todo.pop())
        if node is not None and node.index not in found:
            found[node.index] = node
            todo += [o for o in node.operands if o and o not in known]
    return [found[i] for i in sorted(found)]


def node_labels(nodes: Sequence[Node]) -> tuple[str, ...]:
    """Operator and name of each, or its first result where it has no name."""
    return tuple(f"{node.proto.op_type} {node.proto.name or node.results[0]}" for node in nodes)


def _operands(node: Node | None, mine: Node, rows: Mapping[str, ValueRow]) -> Iterator[Operand]:
    theirs = list(node.operands) if node else []
    same_op = node is not None and node.proto.op_type == mine.proto.op_type
    for i, name in enumerate(mine.operands):
        row = rows.get(name)
        expected = theirs[i] if same_op and i < len(theirs) else ""
        yield Operand(name, row.pair.first if row else "", expected, row.status if row else "unpaired")


def _size(row: ValueRow) -> str:
    """How far a value departs."""
    found = row.local or row.inherited
    if row.chance:
        return row.chance
    if found.finding:
        return found.finding
    if found.max_abs is None:
        return "no element can be compared"
    where = " on the same operands" if row.local else ""
    return f"{found.told('first', 'second')}{where} where {row.noise_floor:.3g} is noise"


def _differences(
    first: Side, second: Side, node: Node | None, mine: Node | None, operands: Sequence[Operand]
) -> Iterator[str]:
    """What is not the same about two nodes that stand in one place."""
    if node is None or mine is None:
        return
    if node.proto.op_type != mine.proto.op_type:
        yield f"{mine.proto.op_type} instead of {node.proto.op_type}"
        return
    yield from _other_attributes(first.flow, second.flow, node, mine)
    for operand in operands:
        if operand.expected and operand.partner and not _reads_the_same(first, second, operand):
            yield f"reads {operand.name!r} (paired with {operand.partner!r}) where the first reads {operand.expected!r}"


def _reads_the_same(first: Side, second: Side, operand: Operand) -> bool:
    """Whether the partner is what the first model's node reads, or has its elements and is shown in its shape."""
    if operand.expected == operand.partner:
        return True
    expected, partner = first.sketches.get(operand.expected), first.sketches[operand.partner]
    if expected is None or expected.shape != second.sketches[operand.name].shape:
        return False
    return expected.has_elements_of(partner)


def _other_attributes(first: Dataflow, second: Dataflow, node: Node, mine: Node) -> Iterator[str]:
    """The attributes that are not the same, but for those that one of two versions of an operator has as operands."""
    theirs, ours = attributes_in_full(node, first), attributes_in_full(mine, second)
    operands = named_operands(node, first) | named_operands(mine, second)
    for name in sorted((theirs.keys() | ours.keys()) - operands):
        one, other = _shown(theirs.get(name)), _shown(ours.get(name))
        sides = ((theirs, node, first), (ours, mine, second))
        alone = [(each[name], of, flow) for each, of, flow in sides if name in each]
        if one != other and (len(alone) == 2 or not _is_usual(*alone[0])):
            yield f"{name} {other} instead of {one}"


def _is_usual(attribute: onnx.AttributeProto, node: Node, flow: Dataflow) -> bool:
    """Whether it says what goes without it, in a version of the operator that lacks it or though that names no default:
    the size of a weight, steps of 1, no padding."""
    is_plain = attribute.name == "kernel_shape" or set(attribute.ints) == {_USUAL.get(attribute.name)}
    return is_plain or is_default(attribute, node, flow)


def _shown(attribute: onnx.AttributeProto | None) -> str:
    if attribute is None:
        return "the default"
    if attribute.HasField("g") or attribute.HasField("t") or attribute.graphs or attribute.tensors:
        return "a tensor or graph"
    value = onnx.helper.get_attribute_value(attribute)
    return str(value.decode(errors="replace") if isinstance(value, bytes) else value)
