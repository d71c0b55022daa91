"""What a graph takes and gives back, read off its FX nodes: the contract between lowering, runtime and backends."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import fx

from dort_compare.errors import UnsupportedGraphError

Scalar = int | float | bool | None


@dataclass(frozen=True)
class GraphInput:
    """A placeholder. ``dtype`` is None for a symbolic integer, which ONNX sees as a 0-d int64 tensor."""

    name: str
    dtype: torch.dtype | None


@dataclass(frozen=True)
class GraphOutput:
    """One output of a graph.

    ``name`` is the FX node (and ONNX value) that is returned, or None for the constant ``constant``.
    ``dtype`` is None for a symbolic integer, which lives on the CPU. ``stride`` is set where torch promised
    a layout that is not contiguous.
    """

    name: str | None
    constant: Scalar = None
    dtype: torch.dtype | None = None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    stride: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Signature:
    """Inputs and outputs of a graph, in the order of the FX graph."""

    inputs: tuple[GraphInput, ...]
    outputs: tuple[GraphOutput, ...]

    @classmethod
    def of(cls, graph_module: fx.GraphModule) -> Signature:
        """Reads the signature of an AOTAutograd graph.

        Raises UnsupportedGraphError for an input that is neither a tensor nor an integer.
        """
        graph = graph_module.graph
        inputs = tuple(_input(node) for node in graph.nodes if node.op == "placeholder")
        returned = graph.output_node().args[0]
        if not isinstance(returned, (tuple, list)):
            returned = (returned,)
        return cls(inputs, tuple(_output(value) for value in returned))

    @property
    def computed(self) -> tuple[str, ...]:
        """Names of the outputs that have to be computed, each once: no input that is handed through, no constant."""
        given = {i.name for i in self.inputs}
        names = (o.name for o in self.outputs if o.name is not None and o.name not in given)
        return tuple(dict.fromkeys(names))


def _input(node: fx.Node) -> GraphInput:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return GraphInput(node.name, value.dtype)
    if isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool):
        return GraphInput(node.name, None)
    raise UnsupportedGraphError(
        f"graph input {node.name} is a {type(value).__name__}; only tensors and integers can enter an ONNX graph"
    )


def _output(value: object) -> GraphOutput:
    if not isinstance(value, fx.Node):
        if value is None or isinstance(value, (int, float, bool)):
            return GraphOutput(None, value)
        raise UnsupportedGraphError(f"graph output {value!r} is neither a tensor nor a number")
    meta = value.meta.get("val")
    if not isinstance(meta, torch.Tensor):
        return GraphOutput(value.name)
    return GraphOutput(value.name, dtype=meta.dtype, device=meta.device, stride=_special_stride(meta))


def _special_stride(value: torch.Tensor) -> tuple[int, ...] | None:
    """The strides of a dense tensor whose dimensions lie in another order than its shape says."""
    stride = value.stride()
    if not all(isinstance(n, int) for n in (*stride, *value.shape)) or value.is_contiguous():
        return None
    order = sorted(range(value.ndim), key=lambda d: stride[d], reverse=True)
    return tuple(stride) if value.permute(order).is_contiguous() else None
