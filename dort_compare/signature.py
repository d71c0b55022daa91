"""What a graph takes and gives back, read off its FX nodes: the contract between lowering, runtime and backends."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import fx

from dort_compare.checks import Check, check_of
from dort_compare.errors import UnsupportedGraphError
from dort_compare.fx_graph import returned_by
from dort_compare.layouts import layout_of
from dort_compare.scalars import is_number
from dort_compare.views import View, view_of

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
