"""What Netron shows of where a dumped model comes from: metadata of nodes and of values, read with onnx alone."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch
from torch import nn

from dort_compare import DebugBackend, provenance
from dort_compare.provenance import metadata_of

ORIGIN = {provenance.FX_NODE, provenance.ATEN_TARGET, provenance.PHASE, provenance.MODULE, provenance.SOURCE}


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.parts = nn.ModuleList([nn.Linear(4, 4), nn.Linear(2, 2)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, _ = torch.split(self.parts[0](self.norm(x)), 2, -1)
        return torch.softmax(self.parts[1](left), -1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_node_and_every_value_of_an_fx_node_bears_its_origin(tmp_path: Path, dtype: torch.dtype) -> None:
    backend = DebugBackend(dump=tmp_path, fallback=False)
    torch.compile(Layer().to(dtype), backend=backend)(torch.randn(3, 4, dtype=dtype)).sum().backward()
    models = [onnx.load(path) for path in sorted(tmp_path.glob("*.onnx"))]
    assert [metadata_of(model)[provenance.PHASE] for model in models] == ["forward", "backward"]
    for model in models:
        graph = model.graph
        assert all(metadata_of(node).keys() >= ORIGIN for node in graph.node)
        values = {value.name: metadata_of(value) for value in (*graph.input, *graph.value_info, *graph.output)}
        named = {name: found for name, found in values.items() if "." not in name}
        assert all(found.keys() >= ORIGIN and found[provenance.FX_NODE] == name for name, found in named.items())
        assert {name for node in graph.node for name in node.output if "." not in name} <= named.keys()
        modules = {metadata_of(node)[provenance.MODULE] for node in graph.node}
        assert modules >= {"norm", "parts.0", "parts.1"}
        sources = {metadata_of(node)[provenance.SOURCE].rpartition(":")[0] for node in graph.node}
        assert sources == {__file__}
