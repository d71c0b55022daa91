"""Nodes without a kernel in half precision compute in float32 and say so; all others are left alone."""

from __future__ import annotations

import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

import dort_compare
from dort_compare.provenance import COMPUTED_IN, FX_NODE
from dort_compare.runtime.kernels import missing_kernels, with_kernels
from dort_compare.runtime.opsets import loads

CPU = [("CPUExecutionProvider", {})]
TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
graph (bfloat16[2,2] x, float[2,2] f) => (bfloat16[2,2] y, bfloat16[2,2] t, float[2,2] e)
<bfloat16[2,2] m>
{
    t = Transpose(x)
    m = MatMul(x, t)
    y = Add(m, x)
    e = Exp(f)
}
"""


FUNCTION = """
<ir_version: 10, opset_import: ["" : 20, "mine" : 1]>
graph (bfloat16[2,2] x) => (bfloat16[2,2] y)
{
    y = mine.doubled(x)
}
<domain: "mine", opset_import: ["" : 20]>
doubled (a) => (b)
{
    raised = Cast<to = 1>(a)
    sum = Add(raised, raised)
    b = Cast<to = 16>(sum)
}
"""


def model() -> ir.Model:
    parsed = ir.from_onnx_text(TEXT)
    for node in parsed.graph:
        (value,) = node.outputs
        node.name = f"{value.name}.{node.op_type}"
        for owner in (node, value):
            owner.metadata_props[FX_NODE] = value.name
    return parsed


def test_a_node_without_a_kernel_computes_in_float32_and_its_value_says_so() -> None:
    raised = with_kernels(model(), CPU)
    for name in ("m", "y"):
        value = next(v for node in raised.graph for v in node.outputs if v.name == name)
        assert value.dtype == ir.DataType.BFLOAT16
        assert value.metadata_props == {FX_NODE: name, COMPUTED_IN: "float32"}
        rounding = value.producer()
        assert rounding is not None
        assert rounding.op_type == "Cast"
        inner = rounding.inputs[0].producer()
        assert {v.dtype for v in (*inner.inputs, *inner.outputs)} == {ir.DataType.FLOAT}
        for node in (rounding, inner, inner.inputs[0].producer()):
            assert node.metadata_props[COMPUTED_IN] == "float32"
            assert node.metadata_props[FX_NODE] == name


def test_inputs_outputs_and_nodes_with_a_kernel_stay_what_they_are() -> None:
    before, raised = model(), with_kernels(model(), CPU)
    assert [v.name for v in raised.graph.inputs] == [v.name for v in before.graph.inputs]
    assert [v.name for v in raised.graph.outputs] == ["y", "t", "e"]
    for name in ("t.Transpose", "e.Exp"):
        node = next(node for node in raised.graph if node.name == name)
        assert COMPUTED_IN not in node.metadata_props
        assert COMPUTED_IN not in node.outputs[0].metadata_props


def test_names_stay_unique() -> None:
    raised = with_kernels(model(), CPU)
    nodes = [node.name for node in raised.graph]
    values = [value.name for node in raised.graph for value in node.outputs]
    assert len(set(nodes)) == len(nodes)
    assert len(set(values)) == len(values)


def test_the_given_model_is_not_changed() -> None:
    given = model()
    with_kernels(given, CPU)
    assert [node.op_type for node in given.graph] == ["Transpose", "MatMul", "Add", "Exp"]


def test_a_model_whose_nodes_all_have_kernels_comes_back_itself() -> None:
    given = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 20]> graph (bfloat16[2,3] x) => (bfloat16[3,2] y) { y = Transpose(x) }'
    )
    assert with_kernels(given, CPU) is given


def test_missing_kernels_are_told_by_fx_node_and_dtype() -> None:
    graph = ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["" : 20]>
        graph (double[2] x, bool b) => (double[2] e, float[2] f, double[2] i) {
            e = Erf(x)
            c = Cast<to = 1>(x)
            f = Erf(c)
            i = If(b) <
                then_branch = yes () => (double[2] p) { p = Exp(x) },
                else_branch = no () => (double[2] q) { q = Neg(x) }
            >
        }"""
    ).graph
    for node in graph:
        node.metadata_props[FX_NODE] = f"fx_{node.outputs[0].name}"
    assert missing_kernels(graph, CPU) == {"fx_e": "CPUExecutionProvider has no kernel of Erf for float64"}


def test_a_bfloat16_node_that_is_cast_has_its_kernel() -> None:
    assert missing_kernels(model().graph, CPU) == {}


FLOAT16 = ir.DataType.FLOAT16


def in_float16() -> ir.Model:
    return ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["" : 20]>
        graph (float16[2,2] x) => (float16[2,2] y) <float16[2,2] s, float16[2,2] t> {
            s = Sin(x)
            t = Transpose(s)
            y = Cos(t)
        }"""
    )


def test_float16_nodes_without_a_kernel_are_rounded_one_by_one() -> None:
    raised = with_kernels(in_float16(), CPU)
    ops = ["Cast", "Sin", "Cast", "Transpose", "Cast", "Cos", "Cast"]
    assert [node.op_type for node in raised.graph] == ops
    assert [raised.graph[i].outputs[0].name for i in (2, 3, 6)] == ["s", "t", "y"]
    assert all(raised.graph[i].outputs[0].dtype == FLOAT16 for i in (2, 3, 6))


def test_float16_nodes_may_be_left_to_onnx_runtime() -> None:
    given = in_float16()
    assert with_kernels(given, CPU, [ir.DataType.BFLOAT16]) is given


def test_a_node_that_names_its_dtype_is_left_to_onnx_runtime() -> None:
    given = ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["" : 20]>
        graph (float16[2,2] x) => (float16[2,2] y) { y = EyeLike<dtype = 10>(x) }"""
    )
    assert with_kernels(given, CPU) is given


@pytest.mark.parametrize(("dtype", "large"), [(torch.bfloat16, 256.0), (torch.float16, 2048.0)])
def test_values_are_rounded_after_each_node(graphs_of, dtype: torch.dtype, large: float) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return (x + y) - x

    x, y = torch.full((4,), large, dtype=dtype), torch.full((4,), 0.75, dtype=dtype)
    (graph,) = graphs_of(function, x, y)
    assert torch.equal(graph.program(*graph.runs[0].inputs)[0], function(x, y))


class SegmentSoftmax(nn.Module):
    """Numerators of a softmax over the edges of each node of a graph."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, edges: Tensor, nodes: Tensor) -> Tensor:
        scores = self.activation(edges)
        largest = torch.full((3,), -torch.inf, dtype=scores.dtype).scatter_reduce(0, nodes, scores, "amax")
        return torch.exp(scores - largest[nodes])


@pytest.mark.parametrize("activation", [nn.LeakyReLU(0.2), nn.GELU(), nn.SiLU()])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_what_the_backward_pass_computes_again_equals_what_the_forward_pass_computed(
    activation: nn.Module, dtype: torch.dtype
) -> None:
    """The gradient of a maximum goes to what equals it, and is divided by how many do."""
    model, nodes = SegmentSoftmax(activation), torch.tensor([0, 0, 1, 1, 1, 2, 2, 0])
    edges = -torch.rand(8, generator=torch.Generator().manual_seed(0)).to(dtype)
    gradients = []
    for run in (model, torch.compile(model, backend="dort")):
        x = edges.clone().requires_grad_()
        run(x, nodes).backward(torch.ones(8, dtype=dtype))
        gradients.append(x.grad)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=0.01, atol=0.01)
    report = dort_compare.compare(model, (edges.requires_grad_(), nodes), backward=True)
    assert report.verdict == "agree", str(report)


def test_a_call_of_one_of_two_functions_of_a_name_stays_what_it_is() -> None:
    given = ir.from_onnx_text(FUNCTION.replace("mine.doubled(x)", "mine.doubled:one(x)"))
    (function,) = given.functions.values()
    function.overload = "one"
    given.functions.clear()
    given.functions[function.identifier()] = function
    assert with_kernels(given, CPU) is given


def test_a_call_of_a_function_that_casts_by_itself_stays_what_it_is() -> None:
    given = ir.from_onnx_text(FUNCTION)
    assert with_kernels(given, CPU) is given


BRANCHES = """
<ir_version: 10, opset_import: ["" : 20]>
graph (bfloat16[2,2] x, bool c) => (bfloat16[2,2] y)
{
    y = If (c) <
        then_branch = then () => (bfloat16[2,2] kept) { kept = Identity(x) },
        else_branch = other () => (bfloat16[2,2] product) { product = MatMul(x, x) }
    >
}
"""


def test_a_node_with_graphs_stays_and_the_nodes_of_these_are_cast() -> None:
    raised = with_kernels(ir.from_onnx_text(BRANCHES), CPU)
    (branches,) = raised.graph
    assert (branches.op_type, branches.outputs[0].dtype) == ("If", ir.DataType.BFLOAT16)
    kept, other = (branches.attributes[name].as_graph() for name in ("then_branch", "else_branch"))
    assert [node.op_type for node in kept] == ["Identity"]
    assert [node.op_type for node in other] == ["Cast", "MatMul", "Cast"]
    assert loads(ir.to_proto(raised).SerializeToString(), CPU)


TAKEN = """
<ir_version: 10, opset_import: ["" : 20]>
graph (bfloat16[2,2] x, bool c, int64 n) => (bfloat16[2,2] y, bfloat16[2,2] o)
{
    o = MatMul(x, x)
    y = Loop (n, c, x) <
        body = round (int64 i, bool k, bfloat16[2,2] "o.float32") => (bool again, bfloat16[2,2] "o.float32_") {
            again = Identity(k)
            "o.float32_" = Identity("o.float32")
        }
    >
}
"""


def test_casts_have_names_that_no_nested_graph_has() -> None:
    raised = with_kernels(ir.from_onnx_text(TAKEN), CPU)
    (product,) = (node for node in raised.graph if node.op_type == "MatMul")
    assert product.outputs[0].name == "o.float32__"
    assert loads(ir.to_proto(raised).SerializeToString(), CPU)
