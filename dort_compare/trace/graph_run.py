"""What every execution of a graph starts from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import onnx
from torch import fx

from dort_compare.errors import UsageError
from dort_compare.provenance import Phase, module_path
from dort_compare.runtime.program import Argument
from dort_compare.runtime.providers import Provider

EngineName = Literal["ort", "reference"]


def check_engine(name: str) -> None:
    """Raises UsageError for what is no ``EngineName``."""
    if name not in get_args(EngineName):
        raise UsageError(f"unknown engine {name!r}; choose ort or reference")


@dataclass(frozen=True)
class GraphRun:
    """One run of one graph: FX, the ONNX model that stands for it, and what went in.

    ``index`` counts the graphs of a comparison, ``number`` the runs of the graph, from 1. ``inputs`` are in the order
    of the FX placeholders, by their names: tensors, and numbers for symbolic sizes. ``providers`` are those of the ONNX
    sessions. ``compile_id`` is what a forward graph shares with its backward graph, ``input_names`` holds the caller's
    names of inputs that have one. ``engine`` is what runs the model: ONNX Runtime, or the ONNX reference evaluator.
    ``is_piece`` says whether this is a piece of a graph that was cut, and ``whole`` is that graph, where it is known.
    ``modules`` are paths of modules by FX node where these are known better than to the nodes themselves: torch traces
    the code of modules of one class once, and a graph runs in each of them.
    """

    phase: Phase
    index: int
    graph_module: fx.GraphModule
    onnx_model: onnx.ModelProto
    inputs: Mapping[str, Argument]
    providers: Sequence[Provider]
    compile_id: str | None = None
    input_names: Mapping[str, str] = field(default_factory=dict)
    engine: EngineName = "ort"
    is_piece: bool = False
    number: int = 1
    whole: fx.GraphModule | None = None
    modules: Mapping[str, str] = field(default_factory=dict)

    @property
    def traced(self) -> fx.GraphModule:
        """The whole graph, as far as it is known."""
        return self.graph_module if self.whole is None else self.whole

    def module_of(self, node: fx.Node) -> str:
        """The path of the module that a node belongs to; "" where that is the model itself, or none is known."""
        return self.modules.get(node.name, module_path(node))

    @property
    def calls(self) -> int:
        """How many calls the FX graph makes."""
        return sum(node.op == "call_function" for node in self.graph_module.graph.nodes)
