"""Of a call with several results, each is made by the nodes that lead to it, whatever these are called."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dort_compare.align import values_of_fx_nodes


def op_types(model: Any, name: str) -> list[str]:
    return list(values_of_fx_nodes(model)[name].op_types)


def test_every_result_has_all_nodes_that_lead_to_it_and_none_of_the_others(graphs_of: Any) -> None:
    forward, backward = graphs_of(nn.BatchNorm1d(4), torch.randn(8, 4))
    found = values_of_fx_nodes(forward.onnx_model)
    normed, running = found["getitem"], found["getitem_3"]
    assert normed.op_types.count("ReduceMean") == 2
    assert len(normed.nodes) > len(running.nodes) > 1
    assert normed.nodes[-1] not in running.nodes
    assert running.nodes[-1] not in normed.nodes
    weight = next(value for value in values_of_fx_nodes(backward.onnx_model).values() if "ReduceSum" in value.op_types)
    assert len(weight.nodes) > 1


def test_what_a_call_reads_did_not_make_its_results(graphs_of: Any) -> None:
    def model(x: Tensor) -> Tensor:
        return torch.native_layer_norm(x.relu(), [4], None, None, 1e-5)[0]

    (graph,) = graphs_of(model, torch.randn(8, 4))
    assert "Relu" not in op_types(graph.onnx_model, "getitem")


def test_a_node_in_between_that_says_nothing_of_itself_is_one_of_them(graphs_of: Any) -> None:
    (graph,) = graphs_of(lambda x: x.max(-1)[0], torch.randn(8, 4))
    model = graph.onnx_model
    value = values_of_fx_nodes(model)["getitem"].name
    node = next(node for node in model.graph.node if value in node.output)
    at = list(node.output).index(value)
    node.output[at] = "before"
    model.graph.node.add(op_type="Neg", input=["before"], output=[value])
    found = values_of_fx_nodes(model)["getitem"]
    assert found.op_types[-2:] == (node.op_type, "Neg")
    assert found.nodes[-1] == f"Neg {value}"


@pytest.mark.parametrize("module", [nn.ReLU(), nn.BatchNorm1d(4)])
def test_a_node_without_a_name_is_called_by_its_operator_and_its_result(graphs_of: Any, module: nn.Module) -> None:
    model = graphs_of(module.eval(), torch.randn(8, 4))[0].onnx_model
    for node in model.graph.node:
        node.name = ""
    unnamed = {f"{node.op_type} {node.output[0]}" for node in model.graph.node}
    for value in values_of_fx_nodes(model).values():
        assert set(value.nodes) <= unnamed
