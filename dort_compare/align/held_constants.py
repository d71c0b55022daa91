"""Constants of one model that stand for inputs of another, as parameters that one holds and the other takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from dort_compare.align.names import by_name
from dort_compare.align.paired_inputs import type_of
from dort_compare.errors import UsageError
from dort_compare.trace.dataflow import Dataflow
from dort_compare.trace.execution import constant

_Key = tuple[int, tuple[int | None, ...]]
"""Element type and sizes, of a matrix those that it is multiplied by in."""


def held_constants(names: Sequence[str], taking: Dataflow, holding: Dataflow) -> dict[str, torch.Tensor]:
    """By input, the constant of its type that shares most words with its name. A matrix may be held with its rows for
    columns, as exporters fold the transposes of weights.

    Raises UsageError where an input may be any of several.
    """
    stock: dict[_Key, list[str]] = {}
    for source, tensor in holding.constants.items():
        stock.setdefault(_key(holding, source, tensor.data_type, tensor.dims), []).append(source)
    wanted: dict[_Key, list[str]] = {}
    for name in names:
        element, shape = type_of(taking, name)
        key = _key(taking, name, element, shape or ())
        if shape is not None and key in stock:
            wanted.setdefault(key, []).append(name)
    found = {}
    for key, takers in wanted.items():
        matched = by_name(takers, stock[key])
        missing = next((name for name in takers if name not in matched), None)
        left = len(stock[key]) - len(matched)
        if missing is not None and left:
            which = "a constant" if left == 1 else f"any of {left} constants"
            raise UsageError(f"{taking.title}: input {missing!r} may be {which} of {holding.title}; give --inputs")
        found.update(matched)
    return {name: _laid(taking, name, holding, found[name]) for name in names if name in found}


def _key(flow: Dataflow, name: str, element: int, shape: Sequence[int | None]) -> _Key:
    return element, tuple(reversed(shape) if len(shape) == 2 and _is_turned(flow, name) else shape)


def _laid(taking: Dataflow, name: str, holding: Dataflow, source: str) -> torch.Tensor:
    value = constant(holding, source)
    is_other = value.ndim == 2 and _is_turned(taking, name) != _is_turned(holding, source)
    return value.mT.contiguous() if is_other else value


def _is_turned(flow: Dataflow, name: str) -> bool:
    """Whether all products that multiply by a matrix do so by its transpose."""
    return {*_turns(flow, name)} == {True}


def _turns(flow: Dataflow, name: str) -> Iterator[bool]:
    todo = [(name, False)]
    while todo:
        each, is_turned = todo.pop()
        for node, slot in flow.readers.get(each, ()):
            op_type = node.proto.op_type
            if op_type in ("Transpose", "Identity", "Cast"):
                todo += [(result, is_turned != (op_type == "Transpose")) for result in node.results]
            elif slot == 1 and op_type in ("MatMul", "Gemm"):
                yield is_turned != any(a.name == "transB" and a.i for a in node.proto.attribute)
