"""The verdict over two ONNX models: what departs first, what it rests on and what it reaches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from dort_compare.align.expressions import attributes_in_full, is_default, named_operands
from dort_compare.align.orders import Order
from dort_compare.align.returned import counterparts
from dort_compare.align.sides import Side
from dort_compare.captures import bodies
from dort_compare.measure.diff import outputs as returned
from dort_compare.measure.diff.other_numbers import other_numbers, told_of
from dort_compare.measure.diff.value_rows import ValueRow
from dort_compare.measure.divergence import Judgement
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


@dataclass(frozen=True)
class Unpaired:
    """A value of one model ("first" or "second") that the other has not, and why it is held to have none."""

    model: str
    name: str
    op_type: str
    reason: str


@dataclass(frozen=True)
class Findings:
    """``reason`` says in a line what the verdict rests on; ``causes`` are all that departs, in order, each once."""

    titles: tuple[str, str]
    verdict: Judgement
    reason: str
    causes: tuple[Cause, ...]
    rows: tuple[ValueRow, ...]
    unpaired: tuple[Unpaired, ...]
    notes: tuple[str, ...]


def findings(first: Side, second: Side, rows: Sequence[ValueRow], taken: Collection[Order]) -> Findings:
    """Judges the rows; ``taken`` are the orders in which the second model takes its inputs.

    Diverges where a value departs, an output has no partner, is of another shape, holds another value or is not there,
    or nothing but inputs and constants inside was compared, or none of the outputs holds a number.
    """
    by_name = {row.pair.second: row for row in rows if row.pair.is_main}
    order = _order(second)
    told = [row for row in rows if row.status == "diverges" and not _is_told_by_another(row, by_name)]
    departing = sorted(told, key=lambda row: order.get(row.pair.second, -1))
    causes = tuple(_cause(row, first, second, by_name) for row in _once_a_node(departing, first, second))
    paired = frozenset(row.pair.first for row in rows), frozenset(row.pair.second for row in rows)
    unequal = other_numbers(first, second, rows)
    known = {key: why for each in unequal for key, why in each.reasons.items()}
    unpaired = (*_unpaired("first", first, paired[0], known), *_unpaired("second", second, paired[1], known))
    outputs = counterparts(first, second, {(row.pair.first, row.pair.second) for row in rows})
    faults = returned.without_numbers(first), returned.fault(first, second, outputs, paired, taken)
    verdict, reason = _verdict(first, second, rows, causes, next(filter(None, faults), None))
    notes = (*_notes(first), *_notes(second), *returned.notes(first, second, outputs), *told_of(first, second, unequal))
    if not causes:
        notes += tuple(_accumulated(by_name, second))
    return Findings((first.flow.title, second.flow.title), verdict, reason, causes, tuple(rows), unpaired, notes)


def _is_told_by_another(row: ValueRow, rows: Mapping[str, ValueRow]) -> bool:
    """Whether it departs from one more of several equal values of the first model."""
    main = rows.get(row.pair.second)
    return row.pair.how == "copy" and main is not None and main.status == "diverges"


def _once_a_node(rows: Sequence[ValueRow], first: Side, second: Side) -> list[ValueRow]:
    """Without further results of a node that depart from those of the same node: they are one fault, but for which of
    them are returned, and of a node with bodies, in which several may be made. Of constants each is told."""
    found: dict[tuple[int, ...], ValueRow] = {}
    for number, row in enumerate(rows):
        nodes = first.made_at(row.pair.first), second.made_at(row.pair.second)
        mine = second.node(row.pair.second)
        is_alone = row.pair.how == "returned" or min(nodes) < 0 or (mine is not None and any(bodies(mine.proto)))
        found.setdefault((*nodes, number) if is_alone else nodes, row)
    return list(found.values())


def _verdict(
    first: Side, second: Side, rows: Sequence[ValueRow], causes: Sequence[Cause], fault: str | None
) -> tuple[Judgement, str]:
    if causes:
        return "diverge", causes[0].reason
    compared = [row for row in rows if _is_compared(row, first, second)]
    if all(row.status == "random" for row in compared):
        return "diverge", "nothing was compared: no computed value of one model has a partner in the other"
    if not any(row.inherited.numel for row in compared):
        return "diverge", "nothing was compared: all that both models compute is empty; other inputs may tell"
    if fault is not None:
        return "diverge", fault
    is_folded = not (first.flow.nodes or second.flow.nodes)
    return "agree", f"{len(compared)} {'returned' if is_folded else 'computed'} values paired, and none departs"


def _is_compared(row: ValueRow, first: Side, second: Side) -> bool:
    """Whether a value is computed, or returned where an optimizer has folded what computed it."""
    is_returned = row.pair.second in second.flow.outputs and row.pair.first not in first.flow.inputs
    return is_returned or row.pair.second in second.flow.producer


def _accumulated(rows: Mapping[str, ValueRow], second: Side) -> Iterator[str]:
    why = "rounding that has accumulated"
    if any(row.status == "random" for row in rows.values()):
        why = f"random numbers that both models draw, or {why}"
    for name in second.flow.outputs:
        row = rows.get(name)
        if row is not None and row.status == "inherits":
            apart = row.inherited.finding or row.inherited.told("first", "second")
            yield f"output {name!r}: {apart}, although no value departs by itself: {why}"


def _order(side: Side) -> dict[str, float]:
    """When a value is there; a constant or an input just before its first reader."""
    made = {name: float(node.index) for node in side.flow.nodes for name in node.results}
    for name in (*side.flow.constants, *side.flow.inputs):
        readers = side.flow.readers.get(name)
        made[name] = readers[0][0].index - 0.5 if readers else float(len(side.flow.nodes))
    return made


def _cause(row: ValueRow, first: Side, second: Side, rows: Mapping[str, ValueRow]) -> Cause:
    node, mine = first.node(row.pair.first), second.node(row.pair.second)
    paired = {r.pair.first for r in rows.values()}
    steps = tuple(_steps(first, row.pair.first, paired)), tuple(_steps(second, row.pair.second, rows.keys()))
    operands = tuple(_operands(node, mine, rows)) if mine else ()
    differences = _differences(node, mine, operands, (first, second))
    reason = "; ".join([_size(row), *differences])
    if row.pair.how == "returned" and row.pair.second in rows:
        held = rows[row.pair.second].pair.first
        reason = f"output {row.pair.second!r} of {second.flow.title} holds {held!r} of {first.flow.title}; {reason}"
    return Cause(row, (_labels(steps[0]), _labels(steps[1])), operands, reason)


def _steps(side: Side, name: str, paired: Iterable[str]) -> list[Node]:
    """The nodes that make a value out of paired ones."""
    known, todo, found = set(paired), [name], {}
    while todo:
        node = side.node(todo.pop())
        if node is not None and node.index not in found:
            found[node.index] = node
            todo += [o for o in node.operands if o and o not in known]
    return [found[i] for i in sorted(found)]


def _labels(nodes: Sequence[Node]) -> tuple[str, ...]:
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
    node: Node | None, mine: Node | None, operands: Sequence[Operand], sides: tuple[Side, Side]
) -> Iterator[str]:
    """What is not the same about two nodes that stand in one place."""
    if node is None or mine is None:
        return
    if node.proto.op_type != mine.proto.op_type:
        yield f"{mine.proto.op_type} instead of {node.proto.op_type}"
        return
    yield from _other_attributes(node, mine, (sides[0].flow, sides[1].flow))
    for operand in operands:
        if operand.expected and operand.partner and not _reads_the_same(operand, *sides):
            yield f"reads {operand.name!r} (paired with {operand.partner!r}) where the first reads {operand.expected!r}"


def _reads_the_same(operand: Operand, first: Side, second: Side) -> bool:
    """Whether the partner is what the first model's node reads, or has its elements and is shown in its shape."""
    if operand.expected == operand.partner:
        return True
    expected, partner = first.sketches.get(operand.expected), first.sketches[operand.partner]
    if expected is None or expected.shape != second.sketches[operand.name].shape:
        return False
    return expected.has_elements_of(partner)


def _other_attributes(node: Node, mine: Node, flows: tuple[Dataflow, Dataflow]) -> Iterator[str]:
    """The attributes that are not the same, but for those that one of two versions of an operator has as operands."""
    theirs, ours = attributes_in_full(node, flows[0]), attributes_in_full(mine, flows[1])
    operands = named_operands(node, flows[0]) | named_operands(mine, flows[1])
    for name in sorted((theirs.keys() | ours.keys()) - operands):
        one, other = _shown(theirs.get(name)), _shown(ours.get(name))
        sides = ((theirs, node, flows[0]), (ours, mine, flows[1]))
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


def _unpaired(
    model: str, side: Side, paired: frozenset[str], known: Mapping[tuple[str, str], str]
) -> Iterator[Unpaired]:
    """Values without a partner in order, each with what is ``known`` of it, or else of where it leads."""
    flow = side.flow
    leads_to: dict[str, str] = {}
    names = [*flow.inputs, *flow.constants, *(name for node in flow.nodes for name in node.results if name)]
    for name in reversed(names):
        results = [r for node, _ in flow.readers.get(name, ()) for r in node.results]
        ends = (r if r in paired else leads_to.get(r, "") for r in results)
        leads_to[name] = next((end for end in ends if end), "")
    for name in names:
        if name in paired:
            continue
        if (model, name) in known:
            reason = known[model, name]
        elif name in flow.opaque or name not in side.sketches:
            reason = "no numeric tensor: not compared"
        elif leads_to[name]:
            reason = f"a step on the way to {leads_to[name]!r}, where the other model has other steps"
        elif not flow.readers.get(name):
            reason = "an output without a counterpart" if name in flow.outputs else "nothing reads it"
        else:
            reason = "no paired value depends on it"
        yield Unpaired(model, name, side.op_type(name) or ("input" if name in flow.inputs else "constant"), reason)


def _notes(side: Side) -> Iterator[str]:
    flow = side.flow
    inside = [node for node in flow.nodes if node.has_body]
    if inside:
        names = ", ".join(_labels(inside[:5])) + (", ..." if len(inside) > 5 else "")
        yield f"{flow.title}: {len(inside)} nodes with bodies are compared at their results and not entered: {names}"
    if flow.calls:
        yield f"{flow.title}: local functions that could not be inlined are not entered: {', '.join(flow.calls[:5])}"
    if side.orders:
        some = ", ".join(map(repr, list(side.orders)[:5])) + (", ..." if len(side.orders) > 5 else "")
        yield f"{flow.title}: values with their dimensions in another order: {len(side.orders)}: {some}"
    opaque = [name for node in flow.nodes for name in node.results if name in flow.opaque]
    if opaque:
        kinds = "sequences, optionals, maps, strings or numbers of few bits"
        yield f"{flow.title}: {len(opaque)} values are {kinds} and not compared"
