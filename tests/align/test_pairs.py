"""What is paired is paired for a reason, and nothing else is."""

from __future__ import annotations

from typing import Any

import onnx
import torch
from torch import Tensor, nn

from dort_compare.align import ModelPair, align_models, values_of_fx_nodes
from dort_compare.align.models import labels, value_names
from dort_compare.provenance import FX_NODE


def branches(x: Tensor) -> Tensor:
    return (x * 2).relu() + (x * 3).relu()


def renamed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with the names of the computed values moved on by one."""
    names = [name for node in model.graph.node for name in node.output]
    new = dict(zip(names, [*names[1:], names[0]], strict=True))
    other = onnx.ModelProto()
    other.CopyFrom(model)
    for node in other.graph.node:
        node.input[:] = [new.get(name, name) for name in node.input]
        node.output[:] = [new[name] for name in node.output]
    for value in (*other.graph.value_info, *other.graph.output):
        value.name = new.get(value.name, value.name)
    return other


def without_metadata(model: onnx.ModelProto) -> onnx.ModelProto:
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    bare.producer_name = "somebody else"
    for owner in (*bare.graph.node, *bare.graph.value_info, *bare.graph.output):
        del owner.metadata_props[:]
    return bare


def test_every_fx_node_has_its_value_with_the_nodes_that_made_it(graphs_of: Any) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.SiLU())
    for graph in graphs_of(model, torch.randn(2, 3)):
        found = values_of_fx_nodes(graph.onnx_model)
        computed = {node.name for node in graph.graph_module.graph.nodes if node.op == "call_function"}
        assert found.keys() == computed
        for fx_node, value in found.items():
            assert value.name == fx_node
            assert value.provenance.fx_node == fx_node
            assert value.provenance.phase == graph.phase
            assert value.nodes
            assert all(name.startswith(f"{fx_node}.") for name in value.nodes)
            assert len(value.op_types) == len(value.nodes)


def test_renamed_values_are_found_by_provenance(graphs_of: Any) -> None:
    (graph,) = graphs_of(branches, torch.randn(3))
    other = renamed(graph.onnx_model)
    found = values_of_fx_nodes(other)
    for node in graph.onnx_model.graph.node:
        (fx_node,) = {entry.value for entry in node.metadata_props if entry.key == FX_NODE}
        assert found[fx_node].name != fx_node
        assert found[fx_node].nodes == (node.name,)


def test_equal_names_without_provenance_prove_nothing(graphs_of: Any) -> None:
    (graph,) = graphs_of(branches, torch.randn(3))
    bare = without_metadata(graph.onnx_model)
    assert values_of_fx_nodes(bare) == {}
    assert labels(bare) == {value.name: value.name for value in bare.graph.input}


def test_a_value_of_several_fx_nodes_is_found_under_each(graphs_of: Any) -> None:
    (graph,) = graphs_of(branches, torch.randn(3))
    model = graph.onnx_model
    entry = next(entry for entry in model.graph.output[0].metadata_props if entry.key == FX_NODE)
    entry.value += " fused"
    found = values_of_fx_nodes(model)
    assert found["fused"].name == found[entry.value.split()[0]].name == model.graph.output[0].name


def test_reordered_branches_pair_by_label() -> None:
    first, second = ["x", "a", "b", "sum"], ["x", "b2", "a2", "sum2"]
    names = {"x": "x", "a2": "a", "b2": "b", "sum2": "sum"}
    pairs = list(align_models(first, second, {name: name for name in first}, names))
    assert pairs == [ModelPair("x", "x"), ModelPair("a", "a2"), ModelPair("b", "b2"), ModelPair("sum", "sum2")]


def test_unpaired_values_of_both_sides_stand_where_they_ran() -> None:
    first = ["only1", "a", "only2", "b", "only3"]
    second = ["new1", "a", "new2", "b", "new3"]
    same = {"a": "a", "b": "b"}
    expected = ["only1/", "/new1", "a/a", "only2/", "/new2", "b/b", "only3/", "/new3"]
    pairs = align_models(first, second, same, same)
    assert [f"{pair.first or ''}/{pair.second or ''}" for pair in pairs] == expected


def test_every_value_of_either_side_stands_in_exactly_one_pair() -> None:
    first = ["p", "a", "q", "b", "c", "r"]
    second = ["c", "s", "b", "t", "a", "u"]
    same = {name: name for name in "abc"}
    pairs = list(align_models(first, second, same, same))
    assert [pair.first for pair in pairs if pair.first] == first
    assert sorted(pair.second for pair in pairs if pair.second) == sorted(second)
    alone = [pair.second for pair in pairs if not pair.first]
    assert alone == ["s", "t", "u"]


def test_an_equal_name_without_a_label_is_no_pair() -> None:
    pairs = list(align_models(["val_1"], ["val_1"], {}, {}))
    assert pairs == [ModelPair("val_1", None), ModelPair(None, "val_1")]


def test_the_two_exporters_pair_by_fx_node(graphs_of: Any) -> None:
    x = torch.randn(3)
    (native,) = graphs_of(branches, x)
    torch._dynamo.reset()
    (torchs,) = graphs_of(branches, x, exporter="torch")
    first, second = native.onnx_model, torchs.onnx_model
    pairs = list(align_models(value_names(first), value_names(second), labels(first), labels(second)))
    computed = {node.name for node in native.graph_module.graph.nodes if node.op == "call_function"}
    assert computed <= {pair.first for pair in pairs if pair.second}
    assert all(pair.first == pair.second for pair in pairs if pair.first and pair.second)
