"""The referee: the same FX graph with every floating value in float64."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from dort_compare.trace.eager import Interpreter, interpreted

aten = torch.ops.aten


def float64_values(graph_module: fx.GraphModule, inputs: Sequence[Any]) -> Iterator[tuple[fx.Node, torch.Tensor]]:
    """Like ``eager_values``, with inputs and dtype arguments raised; integers and booleans stay what they are."""
    return interpreted(_Float64(graph_module), pytree.tree_map(_raised, list(inputs)))


class _Float64(Interpreter):
    def run_node(self, n: fx.Node) -> Any:
        self.node = n
        return super().run_node(n)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        try:
            return call_in_float64(target, args, kwargs)
        except (NotImplementedError, RuntimeError):
            return pytree.tree_map(_raised, self._in_its_own_dtype(target))

    def _in_its_own_dtype(self, target: Any) -> Any:
        """For a kernel that float64 lacks, such as CUDA's fused attention: that op alone computes as in eager."""
        args, kwargs = fx.map_arg((self.node.args, self.node.kwargs), self._as_traced)
        return super().call_function(target, args, kwargs)

    def _as_traced(self, operand: fx.Node) -> Any:
        value, traced = self.env[operand], operand.meta.get("val")
        return value.to(traced.dtype) if isinstance(value, torch.Tensor) and isinstance(traced, torch.Tensor) else value

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return _raised(super().get_attr(target, args, kwargs))


def call_in_float64(target: Any, args: Any, kwargs: Any) -> Any:
    """``target(*args, **kwargs)`` with floating operands and dtype arguments raised to float64, and so the result."""
    args, kwargs = pytree.tree_map(_raised, (args, kwargs))
    if target is aten._softmax.default or target is aten._log_softmax.default:
        args = (*args[:2], False)  # half_to_float has no meaning for float64
    target = aten.reshape.default if target is aten.view.default else target
    return pytree.tree_map(_raised, target(*args, **kwargs))


def _raised(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return torch.float64 if value.is_floating_point else value
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    return value
