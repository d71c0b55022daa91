"""What nothing reads is not computed: ONNX Runtime would, in each run."""

from __future__ import annotations

import onnx_ir as ir
import torch
from rules import CPU, ops
from torch import nn

from dort_compare import compare
from dort_compare.rewrites import rewritten


def model(body: str) -> ir.Model:
    return ir.from_onnx_text(
        f'<ir_version: 10, opset_import: ["" : 18]> g (float[1, 2, 8] x) => (float y) {{ {body} }}'
    )


def test_nodes_that_lead_nowhere_are_left_out_and_the_model_stays_as_it_was():
    before = model("y = ReduceMax<keepdims = 0>(x) a = Transpose(x) b = Neg(a)")
    assert ops(rewritten(before, CPU)) == ["ReduceMax"]
    assert ops(before) == ["ReduceMax", "Transpose", "Neg"]


def test_results_that_nobody_reads_are_not_asked_for():
    pool = rewritten(model("v, i = MaxPool<kernel_shape = [2]>(x) y = ReduceMax<keepdims = 0>(v)"), CPU).graph[0]
    assert [value.name for value in pool.outputs] == ["v"]


def test_a_graph_of_which_nothing_is_left_is_compared():
    report = compare(nn.Flatten(), (torch.rand(2, 3, 4),), optimized=True, rewrites=True)
    assert report.verdict == "agree"
    assert "optimized: none; 0 of them by other nodes, 1 fused away" in str(report)
