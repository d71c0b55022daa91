"""What every execution of a graph starts from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx
from torch import fx

from dort_compare.provenance import Phase
from dort_compare.runtime.program import Argument
from dort_compare.runtime.providers import Provider


@dataclass(frozen=True)
class GraphRun:
    """One run of one graph: FX, the ONNX model that stands for it, and what went in.

    ``index`` counts the graphs of a comparison. ``inputs`` are in the order of the FX placeholders, by their names:
    tensors, and numbers for symbolic sizes. ``providers`` are those of the ONNX sessions.
    """

    phase: Phase
    index: int
    graph_module: fx.GraphModule
    onnx_model: onnx.ModelProto
    inputs: Mapping[str, Argument]
    providers: Sequence[Provider]
