"""Constants of one model that stand for inputs of another, as parameters that one holds and the other takes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch

from dort_compare.align.names import by_name
from dort_compare.align.paired_inputs import input_type
from dort_compare.errors import UsageError
from dort_compare.trace.dataflow import Dataflow
from dort_compare.trace.dataflow_run import constant

_Type = tuple[int, tuple[int | None, ...]]
"""Element type and sizes."""
_TypeOf = Callable[[Dataflow, str], _Type | None]
_PRODUCTS = frozenset(["MatMul", "Gemm", "FusedMatMul", "FusedGemm"])


def held_constants(names: Sequence[str], taking: Dataflow, holding: Dataflow) -> dict[str, torch.Tensor]:
    """By input, the constant of its type that shares most words with its name. A matrix that products multiply by in
    both models may be held with its rows for columns, as exporters fold the transposes of weights.

    Raises UsageError where an input may be any of several.
    """
    found: dict[str, str] = {}
    for type_as in (_as_multiplied, _declared):
        takers = _by_type((name for name in names if name not in found), taking, type_as)
        stock = _by_type((name for name in holding.constants if name not in found.values()), holding, type_as)
        for kind in filter(stock.__contains__, takers):
            found |= _matched(takers[kind], stock[kind], taking, holding)
    return {name: _laid(taking, name, holding, found[name]) for name in names if name in found}


def _by_type(names: Iterable[str], flow: Dataflow, type_as: _TypeOf) -> Mapping[_Type, list[str]]:
    found: dict[_Type, list[str]] = defaultdict(list)
    for name in names:
        if (kind := type_as(flow, name)) is not None:
            found[kind].append(name)
    return found


def _matched(takers: Sequence[str], stock: Sequence[str], taking: Dataflow, holding: Dataflow) -> dict[str, str]:
    found = by_name(takers, stock)
    missing = next((name for name in takers if name not in found), None)
    left = len(stock) - len(found)
    if missing is not None and left:
        which = "a constant" if left == 1 else f"any of {left} constants"
        raise UsageError(f"{taking.title}: input {missing!r} may be {which} of {holding.title}; give --inputs")
    return found


def _declared(flow: Dataflow, name: str) -> _Type | None:
    if name in flow.constants:
        return flow.constants[name].data_type, tuple(flow.constants[name].dims)
    element, shape = input_type(flow, name)
    return None if shape is None else (element, tuple(shape))


def _as_multiplied(flow: Dataflow, name: str) -> _Type | None:
    """The type of a matrix as products multiply by it; None of what is none to all of them."""
    declared, is_turned = _declared(flow, name), _is_turned(flow, name)
    if declared is None or len(declared[1]) != 2 or is_turned is None:
        return None
    return declared[0], declared[1][::-1] if is_turned else declared[1]


def _laid(taking: Dataflow, name: str, holding: Dataflow, source: str) -> torch.Tensor:
    value = constant(holding, source)
    if _as_multiplied(taking, name) is None or _as_multiplied(taking, name) != _as_multiplied(holding, source):
        return value
    return value if _is_turned(taking, name) == _is_turned(holding, source) else value.mT.contiguous()


def _is_turned(flow: Dataflow, name: str) -> bool | None:
    """Whether products multiply by the transpose of a matrix; None where none does, or they do not agree."""
    ways = {*_turns(flow, name)}
    return ways.pop() if len(ways) == 1 else None


def _turns(flow: Dataflow, name: str) -> Iterator[bool]:
    todo = [(name, False)]
    while todo:
        each, is_turned = todo.pop()
        for node, slot in flow.readers.get(each, ()):
            op_type = node.proto.op_type
            if op_type in ("Transpose", "Identity", "Cast"):
                todo += [(result, is_turned != (op_type == "Transpose")) for result in node.results]
            elif slot == 1 and op_type in _PRODUCTS:
                yield is_turned != any(a.name == "transB" and a.i for a in node.proto.attribute)
