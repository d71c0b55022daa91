"""One op again, or a chain of them, by torch, on operands that another execution had."""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from dort_compare.dtypes import is_floating_tensor
from dort_compare.fx_graph import attribute_of
from dort_compare.problems import raise_if_short
from dort_compare.trace.definition import by_definition
from dort_compare.trace.eager import reproducible, runnable
from dort_compare.trace.float64 import REFUSALS, call_in_float64

Change = Callable[[torch.Tensor], torch.Tensor]

aten = torch.ops.aten
_CAST_FIRST = {aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim, aten.cumsum.default}
"""Ops that cast what they read to their ``dtype`` before they add it up: integers, too, are rounded terms then."""


class Replay:
    """Runs single nodes of a graph on given values.

    ``values`` holds, by FX node name, the graph's inputs and what the other execution computed; a 0-d tensor stands for
    a size. What an op that returns several values gives is computed again for each of them. ``chain`` holds, in order,
    the nodes that lie between those values and the node; None where the node itself reads them. ``between`` is the
    dtype that the other execution rounds to on its way from those values to the result, None where it does not by
    itself; ``is_rounded`` says that the values are no longer those that torch computed.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        chain: Sequence[fx.Node] | None = None,
        *,
        between: torch.dtype | None = None,
        is_rounded: bool = False,
    ) -> None:
        self._values = values
        self._chain = chain
        self.between = between
        self.is_rounded = is_rounded

    @property
    def is_chain(self) -> bool:
        """Whether several ops are replayed as one, so that what lies between them need not be rounded."""
        return self._chain is not None

    def value(
        self, node: fx.Node, *, in_float64: bool = False, change: Change | None = None, only: str | None = None
    ) -> torch.Tensor | None:
        """What torch makes of the operands of ``node``, in their dtypes or in float64; None where one is unknown.

        ``change`` is applied to every floating operand before, and to one of integers that the op makes floating terms;
        or to the ``only`` one of this name.
        """
        return self._run(_Once(self._values, in_float64, change, only), lambda once: once.called(node))

    def by_definition(self, node: fx.Node, change: Change) -> torch.Tensor | None:
        """What the definition of an op makes of its operands in float64, where ``change`` is applied to every floating
        result on the way; None where torch has no definition, or an operand is unknown."""
        return self._run(_Once(self._values, in_float64=True), lambda once: once.defined(node, change))

    def names(self) -> Iterator[str]:
        """The FX nodes whose tensors it was given."""
        return (name for name, value in self._values.items() if isinstance(value, torch.Tensor))

    def dtypes(self) -> Iterator[torch.dtype]:
        """The dtypes of all the tensors it was given, and of those that a chain makes in between."""
        return (value.dtype for value in self._tensors())

    def largest(self) -> int:
        """How many elements the largest tensor has that it was given, or that a chain makes in between."""
        numbers = (value.numel() for value in self._tensors())
        return max((number for number in numbers if isinstance(number, int)), default=0)

    def magnitude(self, below: float) -> float:
        """The largest absolute value among the floating numbers that it was given, of those ``below`` a limit; 0 where
        there are none."""
        sizes = (value.double().abs() for value in self._values.values() if is_floating_tensor(value))
        return max((float(size.masked_fill(~(size < below), 0).max()) for size in sizes if size.numel()), default=0.0)

    def first_operand(self, node: fx.Node) -> torch.Tensor | None:
        """The tensor that ``node`` reads as its first argument; None where it is unknown."""
        read = next(iter(node.args), None)
        if not isinstance(read, fx.Node):
            return None
        return self._run(_Once(self._values), lambda once: once.operand(read))

    def arguments(self, node: fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """What ``node`` is called with; None where an operand is unknown, or made by a chain."""
        try:
            return _Once(self._values).arguments(node)
        except REFUSALS as problem:
            raise_if_short(problem)
            return None

    @torch.no_grad()
    def _run(self, once: _Once, make: Callable[[_Once], Any]) -> torch.Tensor | None:
        """The tensor that ``make`` computes behind the chain; None where torch refuses, or it is none."""
        try:
            for node in self._chain or ():
                once.made[node.name] = once.called(node)
            result = make(once)
        except REFUSALS as problem:
            raise_if_short(problem)
            return None
        return result if isinstance(result, torch.Tensor) else None

    def _tensors(self) -> Iterator[torch.Tensor]:
        """The tensors that it was given, and what torch has traced of those that a chain makes in between."""
        made = (node.meta.get("val") for node in self._chain or ())
        return (value for value in (*self._values.values(), *made) if isinstance(value, torch.Tensor))


@dataclass
class _Once:
    """One replay: in which dtypes, and what ``change`` is applied to every floating value that is read, or to ``only``
    one.

    ``made`` is what it has computed or changed so far, by FX node.
    """

    values: Mapping[str, Any]
    in_float64: bool = False
    change: Change | None = None
    only: str | None = None
    made: dict[str, Any] = field(default_factory=dict)

    def called(self, node: fx.Node) -> Any:
        """What torch's kernel makes of the operands."""
        return self._computed(node, self._call)

    def defined(self, node: fx.Node, change: Change) -> Any:
        """What the definition of the op makes of them, where ``change`` is applied to what it goes through."""
        return self._computed(node, lambda call: by_definition(call.target, *self.arguments(call), change))

    def arguments(self, node: fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = fx.map_arg((node.args, node.kwargs), self.operand)
        return args, kwargs

    def operand(self, node: fx.Node) -> Any:
        if node.op == "get_attr":
            return runnable(attribute_of(node))
        if node.name in self.made:
            return self.made[node.name]
        if node.name not in self.values:
            raise _UnknownError(node.name)
        value = self.values[node.name]
        if self.change and is_floating_tensor(value):
            value = self._changed(node, value)
            self.made[node.name] = value  # one that is read twice is the same in both places
            return value
        is_size = not isinstance(node.meta.get("val"), torch.Tensor)
        return value.item() if is_size and isinstance(value, torch.Tensor) else value

    def _computed(self, node: fx.Node, compute: Callable[[fx.Node], Any]) -> Any:
        """``compute`` of the node, or one of its several results."""
        if node.target is not operator.getitem:
            return compute(node)
        producer, position = node.args
        assert isinstance(producer, fx.Node)
        made = self.made.get(producer.name)
        if made is None:
            made = self._computed(producer, compute)
        return None if made is None else made[position]

    def _call(self, node: fx.Node) -> Any:
        args, kwargs = self.arguments(node)
        if _reads_memory(node):
            args = (_laid_out(args[0], node.all_input_nodes[0].meta["val"]), *args[1:])
        if self.change and node.target in _CAST_FIRST:
            args = (self._cast_and_changed(node.all_input_nodes[0], args[0], kwargs.get("dtype")), *args[1:])
        if self.in_float64:
            return call_in_float64(node.target, args, kwargs)
        return reproducible(node.target)(*args, **kwargs)

    def _changed(self, node: fx.Node, value: torch.Tensor) -> torch.Tensor:
        """The floating value of ``node``, changed if that is meant."""
        return self.change(value) if self.change and self.only in (None, node.name) else value

    def _cast_and_changed(self, node: fx.Node, value: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
        """The value of ``node`` that an op casts to ``dtype``, changed behind that; a floating one already is."""
        is_cast = dtype is not None and dtype.is_floating_point and not is_floating_tensor(value)
        return self._changed(node, value.to(dtype)) if is_cast else value


def chain_to(node: fx.Node, known: Container[str]) -> list[fx.Node]:
    """The calls, in order, that lead from the values ``known`` (names of FX nodes) and from inputs to ``node``."""
    found: set[fx.Node] = set()
    waiting = [node]
    while waiting:
        reads = waiting.pop().all_input_nodes
        further = {n for n in reads if n.op == "call_function" and n.name not in known} - found
        found |= further
        waiting.extend(further)
    return sorted(found)


def _reads_memory(node: fx.Node) -> bool:
    """Whether the op counts in the memory of its first operand, whose layout the other execution need not share."""
    return "as_strided" in str(node.target)


def _laid_out(value: torch.Tensor, traced: torch.Tensor) -> torch.Tensor:
    """``value`` with the strides that torch traced."""
    if not all(isinstance(n, int) for n in (*traced.shape, *traced.stride())):
        raise _UnknownError("the strides of a symbolic size")
    if value.shape != traced.shape:
        raise _UnknownError("the strides of another size")
    if not torch.ops.aten.is_non_overlapping_and_dense.default(traced):
        raise _UnknownError("the memory between the elements of a view")
    return torch.empty_strided(traced.shape, traced.stride(), dtype=value.dtype, device=value.device).copy_(value)


class _UnknownError(LookupError):
    """An operand that the other execution has no value for."""
