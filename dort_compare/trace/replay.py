"""One op again, by torch, on operands that another execution had."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch import fx

from dort_compare.trace.float64 import call_in_float64

Change = Callable[[torch.Tensor], torch.Tensor]


class Replay:
    """Runs single nodes of a graph on given values.

    ``values`` holds, by FX node name, the graph's inputs and what the other execution computed; a 0-d tensor stands for
    a size. What an op that returns several values gives is computed again for each of them.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self._change: Change | None = None

    @torch.no_grad()
    def value(self, node: fx.Node, *, in_float64: bool = False, change: Change | None = None) -> torch.Tensor | None:
        """What torch makes of the operands of ``node``, in their dtypes or in float64; None where one is unknown.

        ``change`` is applied to every floating operand before.
        """
        self._change = change
        try:
            result = self._call(node, in_float64)
        except (_UnknownError, NotImplementedError, RuntimeError):
            return None
        return result if isinstance(result, torch.Tensor) else None

    def operands(self) -> Collection[Any]:
        """All the values it was given."""
        return self._values.values()

    def operand(self, node: fx.Node, position: int) -> torch.Tensor | None:
        """The tensor that ``node`` reads as its argument number ``position``; None where it is unknown."""
        argument = node.args[position]
        self._change = None
        try:
            value = self._operand(argument) if isinstance(argument, fx.Node) else None
        except _UnknownError:
            return None
        return value if isinstance(value, torch.Tensor) else None

    def _call(self, node: fx.Node, in_float64: bool) -> Any:
        if node.target is operator.getitem:
            producer, position = node.args
            assert isinstance(producer, fx.Node)
            return self._call(producer, in_float64)[position]
        args: Any
        args, kwargs = fx.map_arg((node.args, node.kwargs), self._operand)
        if _reads_memory(node):
            args = (_laid_out(args[0], node.all_input_nodes[0].meta["val"]), *args[1:])
        if in_float64:
            return call_in_float64(node.target, args, kwargs)
        return node.target(*args, **kwargs)  # type: ignore[operator]

    def _operand(self, node: fx.Node) -> Any:
        if node.op == "get_attr":
            return operator.attrgetter(str(node.target))(node.graph.owning_module)
        if node.name not in self._values:
            raise _UnknownError(node.name)
        value = self._values[node.name]
        if self._change and isinstance(value, torch.Tensor) and value.is_floating_point():
            return self._change(value)
        is_size = not isinstance(node.meta.get("val"), torch.Tensor)
        return value.item() if is_size and isinstance(value, torch.Tensor) else value


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
