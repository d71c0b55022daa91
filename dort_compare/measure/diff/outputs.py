"""What two models return: whether the second's outputs are those of the first."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from dort_compare.align.orders import Order, followed
from dort_compare.align.returned import returned
from dort_compare.align.sides import Side
from dort_compare.dtypes import dtype_name
from dort_compare.layouts import inverse

Outputs = Sequence[tuple[str, str]]
"""Outputs that stand for one another, (first, second)."""


def fault(
    first: Side,
    second: Side,
    outputs: Outputs,
    paired: tuple[frozenset[str], frozenset[str]],
    taken: Collection[Order],
) -> str | None:
    """What is wrong with the outputs, but for their values; ``paired`` are the values of each model that are.

    A model that takes its inputs with the dimensions in another order, those of ``taken``, may return its outputs so.
    """
    for one, other in outputs:
        mine, theirs = second.sketches[other], first.sketches[one]
        if theirs.shape != mine.shape or not theirs.may_equal(mine):
            is_turned = first.shape(one) == second.shape(other) and theirs.may_equal(mine)
            return (_other_order if is_turned else _other_type)(first, second, one, other)
        if (turn := _turn(first, second, one, other)) and turn not in taken:
            return _other_order(first, second, one, other)
    for side, names in zip((first, second), paired, strict=True):
        for name in returned(side):
            if name not in names:
                return f"output {name!r} of {side.flow.title} is paired with nothing"
    missing = [*(name for name in returned(first) if name not in dict(outputs)), *_fewer_opaque(first, second)]
    return f"{second.flow.title} does not return {missing[0]!r}, an output of {first.flow.title}" if missing else None


def _fewer_opaque(first: Side, second: Side) -> list[str]:
    """The outputs that are no tensors for torch whose names the second lacks, where it has fewer such."""
    ours, theirs = _opaque(first), _opaque(second)
    return [name for name in ours if name not in theirs] if len(ours) > len(theirs) else []


def _opaque(side: Side) -> list[str]:
    """The outputs that are no tensors for torch."""
    return [name for name in side.flow.outputs if name in side.flow.opaque]


def without_numbers(side: Side) -> str | None:
    """What to say of a model that returns nothing but NaN and infinities: any other such agrees with it."""
    sketches = [side.sketches[name] for name in returned(side)]
    if not sketches or any(sum(sketch.extremes) < sketch.numel or not sketch.numel for sketch in sketches):
        return None
    return (
        f"nothing was compared: {side.flow.title} returns no finite number, "
        "for want of better inputs perhaps; give some with --inputs"
    )


def notes(first: Side, second: Side, outputs: Outputs) -> Iterator[str]:
    """What is not the same of the outputs, but no fault: a dtype, the order of dimensions, theirs, one in addition."""
    for one, other in outputs:
        if first.sketches[one].dtype != second.sketches[other].dtype:
            yield _other_type(first, second, one, other)
        elif _turn(first, second, one, other):
            yield _other_order(first, second, one, other)
    for name in _opaque(second):
        yield f"output {name!r} of {second.flow.title} is no numeric tensor, and was not compared"
    known = {other for _, other in outputs}
    for name in returned(second):
        if name not in known:
            yield f"{second.flow.title} returns {name!r} in addition"
    theirs = [name for name in returned(first) if (name, name) in outputs]
    ours = [name for name in returned(second) if (name, name) in outputs]
    if theirs != ours:
        orders = f"{', '.join(ours)} in this order, {first.flow.title} {', '.join(theirs)}"
        yield f"{second.flow.title} returns {orders}"


def _turn(first: Side, second: Side, one: str, other: str) -> Order | None:
    """How the second's output is permuted to lie as the first's does; None where it does."""
    plain = tuple(range(len(first.sketches[one].shape)))
    before, after = first.orders.get(one, plain), second.orders.get(other, plain)
    turn = followed(after, inverse(before)) if len(before) == len(after) else plain
    return None if turn == plain else turn


def _other_order(first: Side, second: Side, one: str, other: str) -> str:
    return f"{_other_type(first, second, one, other)}, with its dimensions in another order"


def _other_type(first: Side, second: Side, one: str, other: str) -> str:
    return f"output {other!r} is {_type(second, other)} where {one!r} is {_type(first, one)}"


def _type(side: Side, name: str) -> str:
    return f"{dtype_name(side.sketches[name].dtype)} {'x'.join(map(str, side.shape(name))) or 'scalar'}"
