"""What two models are fed: one value for each pair of inputs, given or drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from dort_compare.align.drawn import drawn_for
from dort_compare.align.held_constants import held_constants
from dort_compare.align.orders import Order
from dort_compare.align.paired_inputs import Sizes, input_dtype, input_type, pair_inputs, sizes_fit
from dort_compare.align.two_dtypes import beyond, holds_all, rounded
from dort_compare.dtypes import dtype_name
from dort_compare.errors import UsageError
from dort_compare.layouts import inverse
from dort_compare.trace.dataflow import Dataflow

_Fed = tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]
"""By input, what the first model is fed, and the second."""
_INTEGERS = {torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64}


@dataclass(frozen=True)
class Inputs:
    """``pairs``: names of inputs that get the same value. ``values``: by name, for the first and the second model.
    ``origins``: in words, where the values come from. ``is_guess``: whether sizes or integers were drawn, of which a
    model may take certain ones only. ``orders``: by input of the second model, the order in which its dimensions are
    those of the first model's."""

    pairs: tuple[tuple[str, str], ...]
    values: _Fed
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
    values: _Fed = ({}, {})
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


def _take_given(
    flows: tuple[Dataflow, Dataflow],
    pairs: Iterable[tuple[str, str]],
    given: Mapping[str, torch.Tensor],
    turns: tuple[Mapping[str, Order], Mapping[str, Order]],
    values: _Fed,
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
) -> tuple[_Fed, list[str]]:
    """By input of either model, what it is fed of one tensor that is given for two dtypes, its own among them; and in
    words what became of how many such."""
    casts: _Fed = ({}, {})
    done = Counter[str]()
    for one, other in pairs:
        sources = [name for name in dict.fromkeys((one, other)) if name in given]
        dtypes = input_dtype(flows[0], one), input_dtype(flows[1], other)
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
    shape = input_type(flow, name)[1]
    if turn is None or tensor.ndim != len(turn) or (shape is not None and sizes_fit(shape, tensor.shape)):
        return tensor
    return tensor.permute(turn)


def _checked(flow: Dataflow, name: str, tensor: torch.Tensor) -> torch.Tensor:
    wanted, shape = input_dtype(flow, name), input_type(flow, name)[1]
    if tensor.dtype != wanted or not (shape is None or sizes_fit(shape, tensor.shape)):
        declared = "x".join("?" if size is None else str(size) for size in shape or []) or "scalar"
        raise UsageError(
            f"{flow.title}: input {name!r} takes {dtype_name(wanted)} {declared}, "
            f"and {dtype_name(tensor.dtype)} {'x'.join(map(str, tensor.shape)) or 'scalar'} is given"
        )
    return tensor.contiguous()


def _take_constants(flows: tuple[Dataflow, Dataflow], pairs: list[tuple[str, str]], values: _Fed) -> list[str]:
    """For inputs that the other model has no input for: its constants of the same type, by the words of their names."""
    origins = []
    for taking, holding, paired, target in (
        (flows[0], flows[1], {one for one, _ in pairs}, values[0]),
        (flows[1], flows[0], {other for _, other in pairs}, values[1]),
    ):
        left = [name for name in taking.inputs if name not in paired and name not in target]
        matched = held_constants(left, taking, holding)
        target.update(matched)
        if matched:
            origins.append(f"{len(matched)} of {taking.title} from the constants of {holding.title}")
    return origins


def _take_random(
    flows: tuple[Dataflow, Dataflow],
    pairs: Mapping[tuple[str, str], Order],
    values: _Fed,
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
        shapes = [_turned(input_type(flow, name)[1], turn) for flow, name, turn in taking]
        value = drawn_for([(flow, name) for flow, name, _ in taking], shapes, generator)
        is_guess |= value.dtype in _INTEGERS or any(None in (shape or ()) for shape in shapes)
        if one:
            values[0][one] = value.to(input_dtype(flows[0], one))
        if other:
            values[1][other] = (value.permute(inverse(order)) if order else value).to(input_dtype(flows[1], other))
    return drawn, is_guess
