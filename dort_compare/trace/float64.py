"""The referee: the same FX graph with every floating value in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from dort_compare.dtypes import is_floating_tensor
from dort_compare.problems import raise_if_short
from dort_compare.scalars import is_number, unbacked_symbols
from dort_compare.trace.eager import Interpreter, Nested, reproducible
from dort_compare.trace.fused_attention import PLAIN

aten = torch.ops.aten


REFUSALS = (RuntimeError, LookupError, ValueError, AssertionError)
"""What torch's kernels raise, and operators that are written in Python; a lack of memory too, which is no refusal."""
_READ_AMISS = {aten.native_batch_norm_backward.default, aten.batch_norm_backward.default}
"""Of which torch's kernels for the CPU give other results where operands lie otherwise in memory: of a batch of one, a
gradient that is a slice with channels last is taken for one that is contiguous."""
_DISTANCES: MappingProxyType[Any, Callable[..., torch.Tensor]] = MappingProxyType(
    {
        aten._cdist_backward.default: lambda _, x1, x2, p, __: aten._cdist_forward.default(x1, x2, p, None),
        aten._pdist_backward.default: lambda _, x, p, __: aten._pdist_forward.default(x, p),
    }
)
"""Gradients of distances, and these, of the same arguments: those that the forward graph saved are rounded, where the
largest difference, raised, is not."""


def _with_bytes(x: torch.Tensor, weight: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """A weight [N, K] in bytes, whose rows the scales multiply: torch's kernel takes no float64."""
    return x @ weight.to(x.dtype).mT * scales


_LACKING: MappingProxyType[Any, Callable[..., Any]] = MappingProxyType(
    {**PLAIN, aten._weight_int8pack_mm.default: _with_bytes}
)
"""What stands for kernels that float64 lacks."""


class Float64(Interpreter):
    """Runs a graph with floating operands and dtype arguments raised; integers and booleans stay what they are.

    An input is raised where it is read, so that no second copy of all of them is kept.
    """

    def run_beside(self, node: fx.Node, expected: Any) -> Any:
        """Runs ``node``, for which torch's kernels made ``expected``.

        That stands, in its own dtype, where the data decide on a size, which rounding may change, and where float64
        comes to nothing.
        """
        if node.op == "call_function" and _decides_on_a_size(node):
            return expected
        try:
            return self.run_node(node)
        except REFUSALS as problem:
            raise_if_short(problem)
            return expected

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        try:
            return call_in_float64(target, args, kwargs)
        except REFUSALS as problem:
            raise_if_short(problem)
            return pytree.tree_map(_raised, self._in_its_own_dtype(target))

    def _in_its_own_dtype(self, target: Any) -> Any:
        """For a kernel that float64 lacks: that op alone computes as in eager."""
        args, kwargs = fx.map_arg((self.node.args, self.node.kwargs), self._as_traced)
        return super().call_function(target, args, kwargs)

    def _as_traced(self, operand: fx.Node) -> Any:
        value, traced = self.env[operand], operand.meta.get("val")
        return value.to(traced.dtype) if isinstance(value, torch.Tensor) and isinstance(traced, torch.Tensor) else value


def _decides_on_a_size(node: fx.Node) -> bool:
    """Whether a size is read off the data here: an integer or boolean that is, or a tensor that has, a new one."""
    value, symbols = node.meta.get("val"), unbacked_symbols(node)
    if isinstance(value, (float, torch.SymFloat)):
        return False
    if is_number(value):
        return bool(symbols)
    return bool(symbols) and not symbols <= frozenset[str]().union(*map(unbacked_symbols, node.all_input_nodes))


def call_in_float64(target: Any, args: Any, kwargs: Any) -> Any:
    """``target(*args, **kwargs)`` with floating operands and dtype arguments raised to float64, and so the result."""
    if target in _READ_AMISS:
        args = pytree.tree_map_only(torch.Tensor, torch.Tensor.contiguous, args)
    return call_raised(target, args, kwargs, _raised)


def call_raised(target: Any, args: Any, kwargs: Any, raised: Callable[[Any], Any]) -> Any:
    """``target(*args, **kwargs)`` with ``raised`` applied to operands, dtype arguments and the result."""
    args, kwargs = pytree.tree_map(raised, (args, kwargs))
    if target is aten._softmax.default or target is aten._log_softmax.default:
        args = (*args[:2], False)  # half_to_float has no meaning for operands that are raised
    if target in _DISTANCES and args[-2] == math.inf:
        args = (*args[:-1], _DISTANCES[target](*args))  # the gradient goes where a difference equals it
    return pytree.tree_map(raised, (_LACKING.get(target) or reproducible(target))(*args, **kwargs))


def _raised(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return torch.float64 if value.is_floating_point else value
    if isinstance(value, Nested):
        return Float64(value.graph_module).run
    return value.double() if is_floating_tensor(value) else value
