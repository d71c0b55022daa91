"""Two models that share no names, as they come from two exporters, are aligned and compared."""

from __future__ import annotations

import json

import onnx
import torch
from pairs_of_models import FAULTS, attention, shuffled

from dort_compare.onnx_diff import diff
from dort_compare.scalars import as_tensor


def test_the_reference_evaluator_runs_too() -> None:
    found = diff(attention(), shuffled(attention(), 4), engine="reference")
    assert found.verdict == "agree", str(found)


def test_the_same_module_by_two_exporters(graphs_of: object) -> None:
    module = torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    x = torch.randn(3, 8)
    with torch.no_grad():
        exported = torch.onnx.export(module, (x,), dynamo=True, verbose=False).model_proto
        (graph,) = graphs_of(module, x)  # type: ignore[operator]
    inputs = {name: as_tensor(value) for name, value in graph.named_inputs().items()}
    found = diff(exported, graph.onnx_model, inputs)
    assert found.verdict == "agree", str(found)
    computed = {row.pair.second for row in found.rows} & {
        n for node in graph.onnx_model.graph.node for n in node.output
    }
    assert computed >= {"addmm", "addmm_1", "gelu", "getitem"}
    wrong = onnx.ModelProto()
    wrong.CopyFrom(graph.onnx_model)
    node = next(node for node in wrong.graph.node if node.op_type == "Add" and node.output[0].startswith("addmm"))
    node.op_type = "Sub"
    departure = diff(exported, wrong, inputs).first_divergence
    assert departure is not None
    assert any(label.startswith("Sub ") for label in departure.nodes[1]), departure


def test_the_json_is_strict(tmp_path: object) -> None:
    wrong = attention()
    FAULTS["axis"][1](wrong.graph)
    text = json.dumps(diff(attention(), wrong).as_json(), allow_nan=False)
    read = json.loads(text)
    assert read["verdict"] == "diverge"
    assert read["causes"][0]["second"] == "p"
