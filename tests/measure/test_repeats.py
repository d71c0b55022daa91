"""A value that changes from run to run is named before anything else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import onnx
import torch

from dort_compare.compiled import graph_run
from dort_compare.measure.graph_rows import graph_rows
from dort_compare.measure.verdict import judge


def shaken(model: onnx.ModelProto, name: str, amount: float) -> onnx.ModelProto:
    """``model`` with a value to which every run adds other random numbers of about ``amount``."""
    nodes = list(model.graph.node)
    position = next(i for i, node in enumerate(nodes) if name in node.output)
    nodes[position].output[list(nodes[position].output).index(name)] = "still"
    noise = onnx.helper.make_node("RandomNormalLike", ["still"], ["noise"], scale=amount)
    nodes[position + 1 : position + 1] = [noise, onnx.helper.make_node("Add", ["still", "noise"], [name])]
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    del changed.graph.node[:]
    changed.graph.node.extend(nodes)
    return changed


def test_what_is_random_is_named_before_what_is_wrong(graphs_of: Any) -> None:
    (graph,) = graphs_of(lambda x: (x.exp() + 1).tanh(), torch.randn(64), target_opset=20)
    run = graph_run(graph)
    model = shaken(run.onnx_model, "tanh", 1e-7)
    next(node for node in model.graph.node if node.op_type == "Exp").op_type = "Sqrt"
    _, (once, *_) = judge(list(graph_rows(replace(run, onnx_model=model))), [])
    assert once.fx_node == "exp"
    _, (first, second) = judge(list(graph_rows(replace(run, onnx_model=model), repeats=4)), [])
    assert (first.fx_node, second.fx_node) == ("tanh", "exp")
    assert first.reason == "changes from run to run on the same operands: 3 of 3 differ"


def test_what_is_still_stays_ok(graphs_of: Any) -> None:
    (graph,) = graphs_of(lambda x: (x @ x).exp(), torch.randn(16, 16))
    assert {row.status for row in graph_rows(graph_run(graph), repeats=3)} == {"ok"}
