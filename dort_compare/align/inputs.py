"""What two models are fed: one value for each pair of inputs, given or drawn."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import onnx
import torch

from dort_compare.align.names import by_name
from dort_compare.align.orders import Order
from dort_compare.align.paired_inputs import Sizes, pair_inputs, sizes_fit, type_of
from dort_compare.align.two_dtypes import beyond, holds_all, rounded
from dort_compare.dtypes import dtype_name, dtype_of_onnx
from dort_compare.errors import UsageError
from dort_compare.signature import inverse
from dort_compare.trace.dataflow import Dataflow, Node
from dort_compare.trace.execution import constant
from dort_compare.trace.passages import RESHAPES

SIZE = 4
"""Of a dimension that the model leaves open."""
_LIMIT = 2**31  # elements
_PASSES_ON = RESHAPES | {"Identity", "Cast"}
_JOINS = frozenset(["Concat", "Mul"])
_SIZES = frozenset([("ConstantOfShape", 0), ("Expand", 1), ("Range", 1), ("Reshape", 1)])
"""Operands, by operator and place, that are sizes."""
_VARIANCES = frozenset([("BatchNormalization", 4), ("Sqrt", 0)])
"""Operands that are not below 0."""
_INTEGERS = {torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64}


@dataclass(frozen=True)
class Inputs:
    """``pairs``: names of inputs that get the same value. ``values``: by name, for the first and the second model.
    ``origins``: in words, where the values come from. ``is_guess``: whether sizes or integers were drawn, of which a
    model may take certain ones only. ``orders``: by input of the second model, the order in which its dimensions are
    those of the first model's."""

    pairs: tuple[tuple[str, str], ...]
    values: tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]
    origins: tuple[str, ...]
    is_guess: bool
    orders: Mapping[str, Order]


def make_inputs(first: Dataflow, second: Dataflow, given: Mapping[str, torch.Tensor] | None, seed: int) -> Inputs:
    """Values for both models: those of ``given`` by input name, the other model's constants for parameters that it
    holds itself, else random ones. What one model takes with channels first and the other with channels last is one
    value, and so is what they take in two dtypes of a kind: both are fed numbers that both dtypes hold.

    Raises UsageError where ``given`` lacks an input, holds one that no model has, of another dtype or shape, or with an
    integer that one of two dtypes does not hold; and where an input is no tensor or too large to be drawn.
    """
    flows = first, second
    for flow in flows:
        _check_tensors(flow)
    known = {*first.inputs, *second.inputs}
    for name in given or {}:
        if name not in known:
            raise UsageError(
                f"the inputs hold {name!r}, which neither model takes; they take {', '.join(sorted(known))}"
            )
    found = pair_inputs(first, second)
    pairs = list(found)
    turns = (
        {one: order for (one, _), order in found.items() if order},
        {other: inverse(order) for (_, other), order in found.items() if order},
    )
    values: Values = ({}, {})
    origins = _take_given(flows, pairs, given or {}, turns, values)
    origins += _take_constants(flows, pairs, values)
    missing = [n for flow, had in zip(flows, values, strict=True) for n in flow.inputs if n not in had]
    if given is not None and missing:
        raise UsageError(f"the inputs hold nothing for {missing[0]!r}; they must hold every input of the models")
    drawn, is_guess = _take_random(flows, found, values, torch.Generator().manual_seed(seed))
    if drawn:
        origins.append(f"{drawn} random, seed {seed}")
    orders = {other: order for (_, other), order in found.items() if order}
    return Inputs(tuple(pairs), values, tuple(origins), is_guess, orders)


def _turned(shape: Sizes | None, order: Order) -> Sizes | None:
    return [shape[dim] for dim in order] if shape and order else shape


def _check_tensors(flow: Dataflow) -> None:
    for name, value in flow.inputs.items():
        if name in flow.opaque or not value.type.tensor_type.elem_type:
            raise UsageError(f"{flow.title}: input {name!r} is no numeric tensor; such models are not compared")


Values = tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]


def _take_given(
    flows: tuple[Dataflow, Dataflow],
    pairs: Iterable[tuple[str, str]],
    given: Mapping[str, torch.Tensor],
    turns: tuple[Mapping[str, Order], Mapping[str, Order]],
    values: Values,
) -> list[str]:
    """Each as a model takes it: turned and cast where that is what fits."""
    partners = dict(pairs), {second: first for first, second in pairs}
    casts, origins = _cast(flows, pairs, given)
    for flow, partner, turn, cast, target in zip(flows, partners, turns, casts, values, strict=True):
        for name in flow.inputs:
            source = name if name in given else partner.get(name)
            if source is not None and source in given:
                tensor = cast.get(name, given[source])
                target[name] = _checked(flow, name, _laid(flow, name, tensor, turn.get(name)))
    return [f"{len(given)} given", *origins] if given else []


def _cast(
    flows: tuple[Dataflow, Dataflow], pairs: Iterable[tuple[str, str]], given: Mapping[str, torch.Tensor]
) -> tuple[Values, list[str]]:
    """By input of either model, what it is fed of one tensor that is given for two dtypes, its own among them; and in
    words what became of how many such."""
    casts: Values = ({}, {})
    done = Counter[str]()
    for one, other in pairs:
        sources = [name for name in dict.fromkeys((one, other)) if name in given]
        dtypes = _dtype(flows[0], one), _dtype(flows[1], other)
        if len(sources) != 1 or given[sources[0]].dtype not in dtypes or dtypes[0] == dtypes[1]:
            continue
        tensor = given[sources[0]]
        which = 1 - dtypes.index(tensor.dtype)
        shared, words = _held_by_both(flows[which], (one, other)[which], tensor, dtypes[which])
        casts[0][one], casts[1][other] = shared.to(dtypes[0]), shared.to(dtypes[1])
        done[words] += 1
    return casts, [f"{count} of them {words}" for words, count in done.items()]


def _held_by_both(flow: Dataflow, name: str, tensor: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, str]:
    """The numbers of a tensor that an input of another dtype is to take too, and what became of them in words."""
    if dtype.is_floating_point and not holds_all(dtype, tensor.dtype):
        return rounded(tensor, [tensor.dtype, dtype]), f"rounded to {dtype_name(dtype)} for both"
    lost = None if dtype.is_floating_point else beyond(tensor, dtype)
    if lost is not None:
        raise UsageError(f"{flow.title}: input {name!r} takes {dtype_name(dtype)}, and what is given holds {lost}")
    return tensor, f"cast to {dtype_name(dtype)} for {flow.title}"


def _laid(flow: Dataflow, name: str, tensor: torch.Tensor, turn: Order | None) -> torch.Tensor:
    shape = type_of(flow, name)[1]
    if turn is None or tensor.ndim != len(turn) or (shape is not None and sizes_fit(shape, tensor.shape)):
        return tensor
    return tensor.permute(turn)


def _checked(flow: Dataflow, name: str, tensor: torch.Tensor) -> torch.Tensor:
    wanted, shape = _dtype(flow, name), type_of(flow, name)[1]
    if tensor.dtype != wanted or not (shape is None or sizes_fit(shape, tensor.shape)):
        declared = "x".join("?" if size is None else str(size) for size in shape or []) or "scalar"
        raise UsageError(
            f"{flow.title}: input {name!r} takes {dtype_name(wanted)} {declared}, "
            f"and {dtype_name(tensor.dtype)} {'x'.join(map(str, tensor.shape)) or 'scalar'} is given"
        )
    return tensor.contiguous()


def _dtype(flow: Dataflow, name: str) -> torch.dtype:
    element = type_of(flow, name)[0]
    dtype = dtype_of_onnx(element)
    if dtype is None:
        kind = onnx.TensorProto.DataType.Name(element)
        raise UsageError(f"{flow.title}: input {name!r} is of type {kind}, which torch does not have")
    return dtype


def _take_constants(flows: tuple[Dataflow, Dataflow], pairs: list[tuple[str, str]], values: Values) -> list[str]:
    """For inputs that the other model has no input for: its constants of the same type, by the words of their names."""
    origins = []
    for taking, holding, paired, target in (
        (flows[0], flows[1], {one for one, _ in pairs}, values[0]),
        (flows[1], flows[0], {other for _, other in pairs}, values[1]),
    ):
        left = [name for name in taking.inputs if name not in paired and name not in target]
        matched = _by_type_and_name(left, taking, holding)
        target.update({name: constant(holding, source) for name, source in matched.items()})
        if matched:
            origins.append(f"{len(matched)} of {taking.title} from the constants of {holding.title}")
    return origins


def _by_type_and_name(names: list[str], taking: Dataflow, holding: Dataflow) -> dict[str, str]:
    stock: dict[tuple[int, tuple[int | None, ...]], list[str]] = {}
    for source, tensor in holding.constants.items():
        stock.setdefault((tensor.data_type, tuple(tensor.dims)), []).append(source)
    wanted: dict[tuple[int, tuple[int | None, ...]], list[str]] = {}
    for name in names:
        element, shape = type_of(taking, name)
        if shape is not None and (element, tuple(shape)) in stock:
            wanted.setdefault((element, tuple(shape)), []).append(name)
    found = {}
    for key, takers in wanted.items():
        matched = by_name(takers, stock[key])
        missing = next((name for name in takers if name not in matched), None)
        left = len(stock[key]) - len(matched)
        if missing is not None and left:
            which = "a constant" if left == 1 else f"any of {left} constants"
            raise UsageError(f"{taking.title}: input {missing!r} may be {which} of {holding.title}; give --inputs")
        found.update(matched)
    return {name: found[name] for name in names if name in found}


def _take_random(
    flows: tuple[Dataflow, Dataflow],
    pairs: Mapping[tuple[str, str], Order],
    values: Values,
    generator: torch.Generator,
) -> tuple[int, bool]:
    """For the inputs that have no value; how many are drawn, and whether sizes or integers are among them."""
    alone = [*((name, "") for name in flows[0].inputs), *(("", name) for name in flows[1].inputs)]
    drawn, is_guess = 0, False
    for one, other in (*pairs, *alone):
        if one in values[0] or other in values[1]:
            continue
        drawn += 1
        order = pairs.get((one, other), ())
        taking = [(flow, name, turn) for flow, name, turn in ((flows[0], one, ()), (flows[1], other, order)) if name]
        shapes = [_turned(type_of(flow, name)[1], turn) for flow, name, turn in taking]
        value = _draw([(flow, name) for flow, name, _ in taking], shapes, generator)
        is_guess |= value.dtype in _INTEGERS or any(None in (shape or ()) for shape in shapes)
        if one:
            values[0][one] = value.to(_dtype(flows[0], one))
        if other:
            values[1][other] = (value.permute(inverse(order)) if order else value).to(_dtype(flows[1], other))
    return drawn, is_guess


def _draw(
    takers: Sequence[tuple[Dataflow, str]], shapes: Sequence[Sizes | None], generator: torch.Generator
) -> torch.Tensor:
    """A random value in sizes that each of the inputs takes, of numbers that the dtypes of all of them hold."""
    flow, name = takers[0]
    sizes = _sizes(shapes)
    if sizes is None:
        raise UsageError(f"{flow.title}: input {name!r} declares no shape to draw values in; give --inputs")
    declared = "x".join(map(str, sizes))
    if min(sizes, default=0) < 0:
        raise UsageError(
            f"{flow.title}: input {name!r} is declared as {declared}, and no dimension can be negative; leave it open, "
            "or give it its size"
        )
    if math.prod(sizes) > _LIMIT:
        raise UsageError(
            f"{flow.title}: input {name!r} is declared as {declared}, too large to be drawn; give --inputs"
        )
    dtypes = [_dtype(*taker) for taker in takers]
    dtype = dtypes[0]
    if dtype == torch.bool:
        return torch.randint(2, sizes, generator=generator, device="cpu").bool()
    if dtype.is_floating_point or dtype.is_complex:
        drawn = torch.randn(sizes, generator=generator, dtype=torch.float64, device="cpu")
        return rounded(drawn.abs() if any(_is_variance(*taker) for taker in takers) else drawn, dtypes)
    if math.prod(sizes) == 1 and any(_is_size(*taker) for taker in takers):
        return torch.full(sizes, SIZE, dtype=dtype, device="cpu")
    limits = [torch.iinfo(dtype) for dtype in dtypes]
    rows = min((rows for taker in takers if (rows := _rows(*taker)) is not None), default=None)
    if rows is None and all(limit.bits <= 16 for limit in limits) and not any(_may_be_places(*each) for each in takers):
        low, high = max(limit.min for limit in limits), min(limit.max for limit in limits)
        return torch.randint(low, high + 1, sizes, generator=generator, device="cpu").to(dtype)
    most = min(2 if rows is None else rows, *(limit.max for limit in limits))
    return torch.randint(most, sizes, generator=generator, device="cpu").to(dtype)


def _sizes(declared: Sequence[Sizes | None]) -> list[int] | None:
    """What one model leaves open, the other may say; None where none says how many dimensions there are."""
    shapes = [shape for shape in declared if shape is not None]
    if not shapes:
        return None
    return [next((size for size in sizes if size is not None), SIZE) for sizes in zip(*shapes, strict=True)]


def _is_size(flow: Dataflow, name: str) -> bool:
    """Whether an integer is one of the sizes that a node is told."""
    reading = _reading(flow, name, _PASSES_ON | _JOINS)
    return any((node.proto.op_type, slot) in _SIZES for node, slot in reading)


def _is_variance(flow: Dataflow, name: str) -> bool:
    """Whether a float below 0 would give nothing but NaN: what a batch norm divides by, or what a root is taken of, a
    small number added perhaps."""
    reading = _reading(flow, name, _PASSES_ON | {"Add"})
    return any((node.proto.op_type, slot) in _VARIANCES for node, slot in reading)


def _rows(flow: Dataflow, name: str) -> int | None:
    """How many rows the tables have that an integer input picks from; None where it picks from none."""
    found = []
    for node, slot in _reading(flow, name, _PASSES_ON):
        if node.proto.op_type == "Gather" and slot == 1:
            axis = next((a.i for a in node.proto.attribute if a.name == "axis"), 0)
            shape = _shape(flow, node.operands[0])
            found += [shape[axis]] if shape and -len(shape) <= axis < len(shape) else []
    known = [size for size in found if size]
    return max(1, min(known)) if known else None


def _may_be_places(flow: Dataflow, name: str) -> bool:
    """Whether narrow integers become such as operators take for places, which none takes from narrow ones."""
    casts = (node for node, _ in _reading(flow, name, _PASSES_ON) if node.proto.op_type == "Cast")
    return any(a.i in (onnx.TensorProto.INT32, onnx.TensorProto.INT64) for node in casts for a in node.proto.attribute)


def _reading(flow: Dataflow, name: str, through: Set[str]) -> Iterator[tuple[Node, int]]:
    """Who reads a value, or what operators of ``through`` make of it: node and which operand."""
    todo, seen = [name], {name}
    while todo:
        for node, slot in flow.readers.get(todo.pop(), ()):
            yield node, slot
            op_type = node.proto.op_type
            if op_type in through and (slot == 0 or op_type in _JOINS):
                todo += [result for result in node.results if result not in seen]
                seen.update(node.results)


def _shape(flow: Dataflow, name: str) -> Sizes:
    if name in flow.constants:
        return list(flow.constants[name].dims)
    return type_of(flow, name)[1] or [] if name in flow.inputs else []
