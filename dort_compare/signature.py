"""What a graph takes and gives back, read off its FX nodes: the contract between lowering, runtime and backends."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx

from dort_compare.checks import Check, check_of
from dort_compare.errors import UnsupportedGraphError
from dort_compare.fx_graph import returned_by
from dort_compare.scalars import is_number
from dort_compare.views import View, view_of

Scalar = int | float | bool | None
_LARGE = 2**16
"""What stands for a size that only a run knows, plus the number of its symbol."""


@dataclass(frozen=True)
class GraphInput:
    """A placeholder. ``dtype`` is None for a number, which ONNX sees as a 0-d int64, float64 or bool tensor."""

    name: str
    dtype: torch.dtype | None


@dataclass(frozen=True)
class GraphOutput:
    """One output of a graph.

    ``name`` is the FX node (and ONNX value) that is returned, or None for the constant ``constant``.
    ``dtype`` is None for a symbolic number, which lives on the CPU. ``order`` is set where torch promised a dense
    layout that is not contiguous: the dimensions from the outermost to the innermost in memory. ``view`` is set for a
    view, which torch makes, and for arithmetic on numbers, which Python does: it knows no largest integer. ``base`` is
    the computed value that it is made of, if there is one.
    """

    name: str | None
    constant: Scalar = None
    dtype: torch.dtype | None = None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    order: tuple[int, ...] | None = None
    view: View | None = None
    base: GraphOutput | None = None


@dataclass(frozen=True)
class Signature:
    """Inputs, outputs and checks of a graph, in the order of the FX graph."""

    inputs: tuple[GraphInput, ...]
    outputs: tuple[GraphOutput, ...]
    checks: tuple[Check, ...] = ()

    @classmethod
    def of(cls, graph_module: fx.GraphModule) -> Signature:
        """Reads the signature of an AOTAutograd graph.

        Raises UnsupportedGraphError for an input that is neither a tensor nor a number.
        """
        graph = graph_module.graph
        inputs = tuple(_input(node) for node in graph.nodes if node.op == "placeholder")
        checks = tuple(filter(None, map(check_of, graph.nodes)))
        return cls(inputs, tuple(_output(value) for value in returned_by(graph)), checks)

    @functools.cached_property
    def computed(self) -> Mapping[str, GraphOutput]:
        """What has to be computed, by name: the outputs and bases of outputs that are no input, view or constant, and
        what says whether the checks hold."""
        given = {i.name for i in self.inputs}
        values = [output.base if output.view else output for output in self.outputs]
        values += [GraphOutput(check.name, dtype=check.dtype) for check in self.checks]
        return {v.name: v for v in values if v is not None and v.name is not None and v.name not in given}


def _input(node: fx.Node) -> GraphInput:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return GraphInput(node.name, value.dtype)
    if is_number(value):
        return GraphInput(node.name, None)
    raise UnsupportedGraphError(
        f"graph input {node.name} is a {type(value).__name__}; only tensors and numbers can enter an ONNX graph"
    )


def _output(value: object) -> GraphOutput:
    if not isinstance(value, fx.Node):
        if value is None or isinstance(value, (int, float, bool)):
            return GraphOutput(None, value)
        raise UnsupportedGraphError(f"graph output {value!r} is neither a tensor nor a number")
    computed = _computed(value)
    view = view_of(value)
    if view is None or view.base is None:
        return replace(computed, view=view)
    is_known = computed.dtype is None or layout_of(view.base.meta["val"]) is not None
    return replace(computed, view=view, base=_computed(view.base)) if is_known else computed


def _computed(node: fx.Node) -> GraphOutput:
    meta = node.meta.get("val")
    if not isinstance(meta, torch.Tensor):
        return GraphOutput(node.name)
    layout = layout_of(meta)
    order = None if layout is None or layout == tuple(range(meta.ndim)) else layout
    return GraphOutput(node.name, dtype=meta.dtype, device=meta.device, order=order)


def layout_of(value: torch.Tensor) -> tuple[int, ...] | None:
    """The order of the dimensions in memory, from the outermost to the innermost; None for a tensor that is not dense.

    It is the order of the shape where that fits. Symbolic sizes stand for what they were when torch traced the graph,
    for asking them would add guards; those that only a run knows for large numbers, each another.
    """
    shape, stride = ([*map(_stand_in, sizes)] for sizes in (value.shape, value.stride()))
    plain = list(range(value.ndim))
    for order in (plain, sorted(plain, key=stride.__getitem__, reverse=True)):
        if is_contiguous([shape[d] for d in order], [stride[d] for d in order]):
            return tuple(order)
    return None


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The order of dimensions that undoes one."""
    return tuple(order.index(dim) for dim in range(len(order)))


def is_contiguous(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether strides are those of elements that lie one after the other in memory, in the order of the shape."""
    dense = list(itertools.accumulate((max(n, 1) for n in reversed(shape)), operator.mul, initial=1))[-2::-1]
    return all(n == 1 or have == want for n, have, want in zip(shape, stride, dense, strict=True))


def _stand_in(size: int | torch.SymInt) -> int:
    hint = _hint(size)
    if isinstance(size, int) or hint is not None:
        return int(hint)
    known, expression = size.node.shape_env.backed_var_to_val, size.node.expr
    unknown = expression.free_symbols - known.keys()
    large = {symbol: _LARGE + int("".join(filter(str.isdigit, symbol.name))) for symbol in unknown}
    return int(expression.subs({**known, **large}))


def reads_result(node: fx.Node, position: int) -> bool:
    """Whether a graph reads the result at ``position`` of ``node``, a call that returns several."""
    return any(user.target is operator.getitem and user.args[1] == position for user in node.users)


def hints(sizes: Sequence[int | torch.SymInt]) -> list[int] | None:
    """What sizes were when torch traced the graph; None where it knew one of them in a run alone."""
    hints = [*map(_hint, sizes)]
    return None if None in hints else hints


def elements(tensor: torch.Tensor) -> int | None:
    """How many elements a tensor had when torch traced the graph; None where that showed in a run alone."""
    sizes = hints(tensor.shape)
    return None if sizes is None else math.prod(sizes)


def _hint(size: int | torch.SymInt) -> Any:
    return size if isinstance(size, int) else size.node.hint
