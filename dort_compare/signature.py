"""What a graph takes and gives back, read off its FX nodes: the contract between lowering, runtime and backends."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import fx

from dort_compare.errors import UnsupportedGraphError
from dort_compare.scalars import is_number
from dort_compare.views import view_of_inputs

Scalar = int | float | bool | None


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
    view of inputs: it makes the output from all inputs of the graph.
    """

    name: str | None
    constant: Scalar = None
    dtype: torch.dtype | None = None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    order: tuple[int, ...] | None = None
    view: fx.GraphModule | None = None


@dataclass(frozen=True)
class Signature:
    """Inputs and outputs of a graph, in the order of the FX graph."""

    inputs: tuple[GraphInput, ...]
    outputs: tuple[GraphOutput, ...]

    @classmethod
    def of(cls, graph_module: fx.GraphModule) -> Signature:
        """Reads the signature of an AOTAutograd graph.

        Raises UnsupportedGraphError for an input that is neither a tensor nor a number.
        """
        graph = graph_module.graph
        inputs = tuple(_input(node) for node in graph.nodes if node.op == "placeholder")
        returned = graph.output_node().args[0]
        if not isinstance(returned, (tuple, list)):
            returned = (returned,)
        return cls(inputs, tuple(_output(value) for value in returned))

    @property
    def computed(self) -> tuple[str, ...]:
        """Names of the outputs that have to be computed, each once: no input, no view of one, no constant."""
        given = {i.name for i in self.inputs}
        names = (o.name for o in self.outputs if o.name is not None and o.name not in given and o.view is None)
        return tuple(dict.fromkeys(names))


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
    meta = value.meta.get("val")
    if not isinstance(meta, torch.Tensor):
        return GraphOutput(value.name)
    view = view_of_inputs(value)
    return GraphOutput(value.name, dtype=meta.dtype, device=meta.device, order=_memory_order(meta), view=view)


def _memory_order(value: torch.Tensor) -> tuple[int, ...] | None:
    """The order of the dimensions in memory, of a dense tensor for which it is not the order of its shape.

    Symbolic sizes stand for what they were when torch traced the graph: asking them would add guards.
    """
    shape, stride = _hints(value.shape), _hints(value.stride())
    if shape is None or stride is None or _is_contiguous(shape, stride):
        return None
    order = sorted(range(value.ndim), key=stride.__getitem__, reverse=True)
    return tuple(order) if _is_contiguous([shape[d] for d in order], [stride[d] for d in order]) else None


def _is_contiguous(shape: Sequence[int], stride: Sequence[int]) -> bool:
    dense = list(itertools.accumulate(reversed(shape), operator.mul, initial=1))[-2::-1]
    return 0 in shape or all(n == 1 or have == want for n, have, want in zip(shape, stride, dense, strict=True))


def _hints(sizes: Sequence[int | torch.SymInt]) -> list[int] | None:
    hints = [size if isinstance(size, int) else size.node.hint for size in sizes]
    return None if None in hints else hints
