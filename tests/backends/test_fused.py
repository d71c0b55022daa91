"""Attention that ``dort`` leaves to torch's kernels on a GPU; here the CPU's kernel stands for those."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import nn

from dort_compare import provenance
from dort_compare.backends import fused
from dort_compare.models import LlamaConfig, build

aten = torch.ops.aten
LLAMA = LlamaConfig(hidden=64, heads=4, kv_heads=2, intermediate=96, vocabulary=50, layers=2, attention="sdpa")
FORWARD = "_scaled_dot_product_flash_attention_for_cpu"


@pytest.fixture(autouse=True)
def _leave_the_cpus_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    attention = getattr(aten, FORWARD).default, getattr(aten, f"{FORWARD}_backward").default
    monkeypatch.setattr(fused, "FUSED", set(attention))


def gradients(function: Any, model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
    model.zero_grad()
    function(*inputs).square().mean().backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


def fx_nodes(folder: Path) -> list[set[str]]:
    """The FX nodes that the ONNX nodes of each dumped model come from."""
    graphs = json.loads((folder / "manifest.json").read_text())["graphs"]
    models = [onnx.load(folder / graph["onnx"]) for graph in graphs.values()]
    return [{p.value for n in m.graph.node for p in n.metadata_props if p.key == provenance.FX_NODE} for m in models]


@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_a_model_trains_as_in_eager(autocast: torch.dtype | None, said_by: Any) -> None:
    model, inputs = build("model", LLAMA, seq=32)
    with torch.autocast("cpu", autocast, enabled=autocast is not None):
        right = gradients(model, model, inputs)
        found = gradients(torch.compile(model, backend="dort"), model, inputs)
    allowed = 2e-2 if autocast else 1e-5
    for name, gradient in right.items():
        assert (found[name] - gradient).norm() <= allowed * gradient.norm(), name
    assert said_by("dort_compare") == []


def test_the_rest_runs_in_onnx_runtime_in_pieces_around_it(tmp_path: Path) -> None:
    model, inputs = build("model", LLAMA, seq=32)
    gradients(torch.compile(model, backend="dort", options={"dump": tmp_path}), model, inputs)
    pieces = fx_nodes(tmp_path)
    assert len(pieces) == 6, "three of the forward graph around two layers' attention, three of the backward one"
    assert not [name for piece in pieces for name in piece if name.startswith(FORWARD)]


def test_what_else_has_no_lowering_falls_back_alone(tmp_path: Path, said_by: Any) -> None:
    model, inputs = build("model", LLAMA, seq=32)
    noisy = nn.Sequential(model, nn.Dropout())
    gradients(torch.compile(noisy, backend="dort", options={"dump": tmp_path}), noisy, inputs)
    (warning, *others) = said_by("dort_compare")
    assert "of" in warning
    assert "attention" not in "".join([warning, *others])
    assert len([piece for piece in fx_nodes(tmp_path) if len(piece) > 1]) >= 6


def test_no_fallback_leaves_nothing_to_torch(tmp_path: Path) -> None:
    model, inputs = build("model", LLAMA, seq=32)
    gradients(torch.compile(model, backend="dort", options={"dump": tmp_path, "fallback": False}), model, inputs)
    forward, backward = fx_nodes(tmp_path)
    assert [name for name in forward if name.startswith(FORWARD)]
    assert [name for name in backward if name.startswith(FORWARD)]
