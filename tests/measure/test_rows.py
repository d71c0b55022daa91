"""Rows: a planted fault is reported at exactly the FX node that it was planted in."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, fx

from dort_compare.align.provenance import OnnxValue
from dort_compare.backends import CompiledGraph
from dort_compare.compiled import graph_run
from dort_compare.measure.graph_rows import graph_rows
from dort_compare.measure.judging import Judge
from dort_compare.measure.rows import Row
from dort_compare.measure.verdict import judge
from dort_compare.provenance import ATEN_TARGET, FX_NODE, Provenance
from dort_compare.trace import GraphRun, lockstep
from dort_compare.trace.four_executions import Executed, executions
from dort_compare.trace.stand_ins import StandIns

Fault = Callable[[ir.Node], None]


def swap_operands(node: ir.Node) -> None:
    first, second = node.inputs
    node.replace_input_with(0, second)
    node.replace_input_with(1, first)


def become(op_type: str) -> Fault:
    def fault(node: ir.Node) -> None:
        node.op_type = op_type

    return fault


def set_attribute(name: str, value: int) -> Fault:
    def fault(node: ir.Node) -> None:
        node.attributes[name] = ir.AttrInt64(name, value)

    return fault


def change_constant(node: ir.Node) -> None:
    constant = next(value for value in node.inputs if value is not None and value.const_value is not None)
    new = np.asarray(constant.const_value.numpy() * 1.001, dtype=constant.const_value.numpy().dtype)
    graph = node.graph
    assert graph is not None
    other = ir.Value(name="const.wrong", type=constant.type, shape=constant.shape, const_value=ir.tensor(new))
    graph.register_initializer(other)
    node.replace_input_with(list(node.inputs).index(constant), other)


def plant(graph: CompiledGraph, target: str, op_type: str, fault: Fault) -> str:
    """Damages the last ONNX node of a kind that was made for an ATen target; returns its FX node."""
    nodes = [
        node
        for node in graph.program.model.graph
        if node.op_type == op_type and node.metadata_props[ATEN_TARGET] == target
    ]
    assert nodes, [(node.op_type, node.metadata_props[ATEN_TARGET]) for node in graph.program.model.graph]
    fault(nodes[-1])
    return nodes[-1].metadata_props[FX_NODE]


def downstream(graph: CompiledGraph, name: str) -> set[str]:
    reached = {name}
    for node in graph.graph_module.graph.nodes:
        if any(operand.name in reached for operand in node.all_input_nodes):
            reached.add(node.name)
    return reached


def model(x: Tensor, w: Tensor) -> Tensor:
    scores = (-(x @ w) * 0.125).softmax(-1)
    side = torch.relu(x - 1)
    return (scores * w).tanh() + side.sum()


FORWARD = [
    ("aten.sub.Tensor", "Sub", swap_operands),
    ("aten.mul.Tensor", "Mul", become("Add")),
    ("aten.neg.default", "Neg", become("Identity")),
    ("aten._softmax.default", "Softmax", set_attribute("axis", 0)),
    ("aten.relu.default", "Relu", become("Abs")),
    ("aten.tanh.default", "Tanh", become("Sigmoid")),
    ("aten.mm.default", "MatMul", swap_operands),
]


def statuses(rows: Iterable[Row]) -> dict[str, str]:
    return {row.fx_node: row.status for row in rows}


def assert_only_at(graph: CompiledGraph, name: str) -> None:
    rows = list(graph_rows(graph_run(graph)))
    found = statuses(rows)
    assert [node for node, status in found.items() if status == "diverges"] == [name]
    assert found == {
        node: "diverges" if node == name else found[node] if node in downstream(graph, name) else "ok" for node in found
    }
    assert {found[node] for node in downstream(graph, name) if node in found and node != name} <= {"inherits", "ok"}
    verdict, (first,) = judge(rows, [])
    assert verdict == "diverge"
    assert (first.fx_node, first.phase) == (name, graph.phase)
    assert first.source.split(":")[0].endswith("test_rows.py")


def square(requires_grad: bool = False) -> tuple[Tensor, Tensor]:
    return torch.randn(4, 4, requires_grad=requires_grad), torch.randn(4, 4, requires_grad=requires_grad)


def test_a_right_model_is_ok_everywhere(graphs_of: Any) -> None:
    for graph in graphs_of(model, *square(requires_grad=True)):
        rows = list(graph_rows(graph_run(graph)))
        assert {row.status for row in rows} == {"ok"}
        assert [row.phase for row in rows] == [graph.phase] * len(rows)
        assert all(row.onnx_value == row.fx_node and row.onnx_nodes and row.op_types for row in rows)
        assert all(row.inherited is not None and row.noise_floor is not None for row in rows)


@pytest.mark.parametrize(("target", "op_type", "fault"), FORWARD)
def test_a_fault_in_the_forward_graph_is_named(graphs_of: Any, target: str, op_type: str, fault: Fault) -> None:
    (graph,) = graphs_of(model, *square())
    assert_only_at(graph, plant(graph, target, op_type, fault))


def test_a_constant_off_by_a_thousandth_is_named(graphs_of: Any) -> None:
    (graph,) = graphs_of(lambda x: (x.exp() * 3.7).sqrt(), torch.randn(4))
    assert_only_at(graph, plant(graph, "aten.mul.Tensor", "Mul", change_constant))


@pytest.mark.parametrize(
    ("target", "op_type", "fault"),
    [
        ("aten.mm.default", "MatMul", swap_operands),
        ("aten.mul.Tensor", "Mul", become("Add")),
        ("aten.neg.default", "Neg", become("Identity")),
    ],
)
def test_a_fault_in_the_backward_graph_is_named(graphs_of: Any, target: str, op_type: str, fault: Fault) -> None:
    forward, backward = graphs_of(model, *square(requires_grad=True))
    assert_only_at(backward, plant(backward, target, op_type, fault))
    assert {row.status for row in graph_rows(graph_run(forward))} == {"ok"}


def test_a_value_with_the_name_of_another_is_judged_by_its_provenance(graphs_of: Any) -> None:
    (graph,) = graphs_of(lambda x: x.exp() + x.tanh(), torch.randn(4))
    values = {value.name: value for node in graph.program.model.graph for value in node.outputs}
    values["exp"].name, values["tanh"].name = "tanh", "exp"
    rows = list(graph_rows(graph_run(graph)))
    assert {row.status for row in rows} == {"ok"}
    assert {row.fx_node: row.onnx_value for row in rows}["exp"] == "tanh"


def strip(graph: CompiledGraph, name: str) -> None:
    for node in graph.program.model.graph:
        for value in node.outputs:
            if value.name == name:
                value.metadata_props.clear()


def test_a_value_without_provenance_is_unaligned_and_passes_faults_on(graphs_of: Any) -> None:
    (graph,) = graphs_of(lambda x: (x - 1).exp().tanh().sigmoid() + x, torch.randn(4))
    name = plant(graph, "aten.sub.Tensor", "Sub", swap_operands)
    strip(graph, "exp")
    strip(graph, "tanh")
    found = statuses(graph_rows(graph_run(graph)))
    assert found == {
        name: "diverges",
        "exp": "unaligned",
        "tanh": "unaligned",
        "sigmoid": "inherits",
        "add": "inherits",
    }


def test_a_fault_in_an_unaligned_value_shows_at_the_next(graphs_of: Any) -> None:
    (graph,) = graphs_of(lambda x: (x - 1).exp(), torch.randn(4))
    strip(graph, plant(graph, "aten.sub.Tensor", "Sub", swap_operands))
    assert list(statuses(graph_rows(graph_run(graph))).values()) == ["unaligned", "diverges"]


def test_nan_is_a_finding(graphs_of: Any) -> None:
    (graph,) = graphs_of(lambda x: x.exp() + 1, torch.tensor([-1.0, 4.0]))
    name = plant(graph, "aten.exp.default", "Exp", become("Log"))
    row = next(row for row in graph_rows(graph_run(graph)) if row.fx_node == name)
    assert row.status == "diverges"
    assert row.inherited is not None
    assert row.inherited.finding == "1 NaN in ONNX where torch has numbers"


def test_nan_on_both_sides_is_no_finding(graphs_of: Any) -> None:
    (graph,) = graphs_of(lambda x: x.log() + 1, torch.tensor([-1.0, 0.0, 4.0]))
    assert {row.status for row in graph_rows(graph_run(graph))} == {"ok"}


def test_an_integer_off_by_one_diverges_however_large(graphs_of: Any) -> None:
    (graph,) = graphs_of(lambda i: (i + 1) * 2, torch.tensor([2**53, 2**60]))
    name = plant(graph, "aten.add.Tensor", "Add", become("Sub"))
    assert next(row for row in graph_rows(graph_run(graph)) if row.status == "diverges").fx_node == name


def test_what_was_computed_in_float32_says_so(graphs_of: Any) -> None:
    (graph,) = graphs_of(lambda x: (x @ x).t(), torch.randn(4, 4).bfloat16())
    assert [row.computed_in for row in graph_rows(graph_run(graph))] == ["float32", None]


# Candidates that no ONNX model would give.


def judge_of(module: fx.GraphModule) -> Judge:
    return Judge(GraphRun("inference", 0, module, onnx.ModelProto(), {}, ()))


def rows_for(change: Callable[[Tensor], Tensor], x: Tensor) -> list[Row]:
    """The rows where ONNX Runtime is made to compute what ``change`` makes of torch's values."""
    module = fx.symbolic_trace(lambda x: (x + 1) * 2)
    judge = judge_of(module)
    rows = []
    for step in lockstep(module, [x]):
        name = step.node.name
        stand = OnnxValue(name, Provenance.of(step.node, "inference"), ("Op",), (name,), None)
        local = change(step.value) if step.node.target is operator.add else step.value
        rows.append(judge.row(Executed(step, name, change(step.value), [local]), stand))
    return rows


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (lambda t: t.double(), "dtype float64 instead of float32"),
        (lambda t: t[None], "shape (1, 3) instead of (3,)"),
        (lambda t: t[:1], "shape (1,) instead of (3,)"),
    ],
)
def test_another_dtype_or_shape_is_a_finding_and_never_a_broadcast(
    change: Callable[[Tensor], Tensor], finding: str
) -> None:
    first, second = rows_for(change, torch.ones(3))
    assert (first.status, second.status) == ("diverges", "inherits")
    assert first.inherited is not None
    assert first.inherited.finding == finding
    verdict, (divergence,) = judge([first, second], [])
    assert verdict == "diverge"
    assert divergence.reason == finding


def test_unsigned_values_are_not_subtracted_modulo_256() -> None:
    first, *_ = rows_for(lambda t: t - 1, torch.tensor([0, 5], dtype=torch.uint8))
    assert first.status == "diverges"
    assert first.inherited is not None
    assert first.inherited.max_abs == 1


def test_float64_is_not_judged_through_float32() -> None:
    x = torch.tensor([1.0 + 2.0**-40], dtype=torch.float64)
    assert [row.status for row in rows_for(lambda t: t, x)] == ["ok", "ok"]
    assert rows_for(lambda t: t.float().double(), x)[0].status == "diverges"


def test_a_value_that_changes_from_run_to_run_is_named_even_within_noise() -> None:
    module = fx.symbolic_trace(lambda x: x + 1)
    (step,) = lockstep(module, [torch.ones(3)])
    stand = OnnxValue("add", Provenance.of(step.node, "inference"), ("Op",), ("add",), None)
    other = torch.nextafter(step.value, torch.tensor(9.0))
    row = judge_of(module).row(Executed(step, "add", step.value, [step.value, other, step.value]), stand)
    assert row.status == "diverges"
    assert row.reason == "changes from run to run on the same operands: 1 of 2 differ"


def test_a_mask_of_the_wrong_sign_is_named(graphs_of: Any) -> None:
    (graph,) = graphs_of(lambda x: torch.where(x > 0, x, torch.finfo(x.dtype).min), torch.tensor([-1.0, 4.0]))
    name = plant(graph, "aten.scalar_tensor.default", "Identity", become("Neg"))
    assert next(row for row in graph_rows(graph_run(graph)) if row.status == "diverges").fx_node == name


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_equal_values_have_a_floor_too(graphs_of: Any, scale: float) -> None:
    (graph,) = graphs_of(lambda x: x.neg(), torch.tensor([scale, 0.0]))
    (row,) = graph_rows(graph_run(graph))
    assert row.local is not None
    assert row.local.equal
    assert row.noise_floor == pytest.approx(scale * 16 * 2.0**-24)


@pytest.mark.parametrize("fault", ["Greater", "Less"])
def test_a_comparison_of_half_precision_operands_is_exact(graphs_of: Any, fault: str) -> None:
    (graph,) = graphs_of(lambda x, y: x >= y, torch.ones(8).bfloat16(), torch.ones(8).bfloat16())
    name = plant(graph, "aten.ge.Tensor", "GreaterOrEqual", become(fault))
    assert [row.fx_node for row in graph_rows(graph_run(graph)) if row.status == "diverges"] == [name]


def test_an_alias_of_an_alias_is_judged(graphs_of: Any) -> None:
    (graph,) = graphs_of(lambda x: x.exp().tanh().sigmoid(), torch.randn(4))
    run = graph_run(graph)
    stands = dict.fromkeys(("exp", "tanh", "sigmoid"), "exp")
    found = {e.step.node.name: e.local for e in executions(run, StandIns(stands))}
    assert {name: len(local) for name, local in found.items()} == dict.fromkeys(stands, 1)
