"""What survives ONNX Runtime's optimizers, and what became of the rest."""

from __future__ import annotations

import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor
from torch.nn import functional as F

from dort_compare.align.optimized import align_optimized
from dort_compare.provenance import FX_NODE
from dort_compare.runtime.providers import SessionSettings
from dort_compare.trace.onnx import onnx_values, optimized

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16


def hand_made(nodes: list[tuple[str, str, str]], dtypes: dict[str, int], outputs: str) -> onnx.ModelProto:
    """Nodes are (op, inputs, output); every value is 4 x 4 and stands for the FX node of its name."""
    values = {n: helper.make_tensor_value_info(n, dtypes.get(n, FLOAT), [4, 4]) for n in ["x", *(y for *_, y in nodes)]}
    for name, value in values.items():
        value.metadata_props.add(key=FX_NODE, value=name)
    made = [helper.make_node(op, i.split(), [o], o) for op, i, o in nodes]
    for node in made:
        node.metadata_props.add(key=FX_NODE, value=node.name)
    shown = [values[name] for name in outputs.split()]
    inner = [value for name, value in values.items() if name not in (*outputs.split(), "x")]
    return helper.make_model(helper.make_graph(made, "g", [values["x"]], shown, value_info=inner))


BEFORE = hand_made([("Exp", "x", "a"), ("Neg", "a", "b"), ("Abs", "b", "c"), ("Log", "c", "d")], {}, "d")


def test_a_value_between_survivors_is_part_of_the_next_one():
    after = hand_made([("Exp", "x", "a"), ("Fused", "a", "c"), ("Log", "c", "d")], {}, "d")
    found = align_optimized(BEFORE, after)
    assert set(found.values) == {"a", "c", "d"}
    assert found.fused_away == ("b",)
    assert found.values["c"].fused == ("b", "c")
    assert found.values["c"].provenance.fx_node == "b c"
    assert (found.values["c"].op_types, found.values["c"].nodes) == (("Fused",), ("c",))
    assert [found.values[name].fused for name in "ad"] == [(), ()]


def test_a_name_that_has_another_dtype_now_is_no_survivor():
    after = hand_made([("Exp", "x", "a"), ("Half", "a", "b"), ("Abs", "b", "c"), ("Log", "c", "d")], {"b": HALF}, "d")
    found = align_optimized(BEFORE, after)
    assert found.fused_away == ("b",)
    assert found.values["c"].fused == ("b", "c")


def test_a_result_of_the_model_survives_in_any_shape():
    """As where a fused pooling has another number of windows; an inner value of another shape is another value."""
    after = hand_made([("Exp", "x", "a"), ("Neg", "a", "b"), ("Fused", "b", "d")], {}, "d")
    for value in (*after.graph.output, *after.graph.value_info):
        if value.name in "bd":
            value.type.tensor_type.shape.dim[0].dim_value = 3
    found = align_optimized(BEFORE, after)
    assert set(found.values) == {"a", "d"}
    assert found.values["d"].fused == ("b", "c", "d")


def test_nodes_that_read_past_a_survivor_are_made_for_what_it_was_made_for_too():
    """As where a cast there and back is taken away, and the narrow value stays for somebody else."""
    after = hand_made([("Exp", "x", "a"), ("Neg", "a", "b"), ("Fused", "a", "c"), ("Log", "c", "d")], {}, "b d")
    found = align_optimized(BEFORE, after)
    assert found.values["c"].fused == ("b", "c")
    assert found.values["b"].fused == ()
    assert found.fused_away == ()


def test_a_value_that_is_read_before_its_turn_is_no_survivor():
    """Two equal values became one, the later: what read the earlier is not fed it."""
    before = hand_made([("Exp", "x", "a"), ("Neg", "a", "b"), ("Exp", "x", "c"), ("Abs", "c", "d")], {}, "b d")
    after = hand_made([("Exp", "x", "c"), ("Neg", "c", "b"), ("Abs", "c", "d")], {}, "b d")
    found = align_optimized(before, after)
    assert set(found.fused_away) == {"a", "c"}
    assert found.values["b"].fused == ("a", "b")


@pytest.fixture
def of_a_graph(graphs_of):
    def made(function, *args):
        (graph,) = graphs_of(function, *args)
        model, providers = graph.onnx_model, graph.program.providers
        return graph, align_optimized(model, optimized(model, SessionSettings(), providers))

    return made


@pytest.mark.usefixtures("silu_by_sigmoid")
def test_what_onnx_runtime_fuses_has_the_fx_nodes_that_went_into_it(of_a_graph):
    _, found = of_a_graph(lambda x, w: F.silu(x @ w.t()), torch.randn(3, 8), torch.randn(5, 8))
    assert (found.values["mm"].op_types, found.values["mm"].fused) == (("FusedMatMul",), ("t", "mm"))
    assert (found.values["silu"].op_types, found.values["silu"].fused) == (("QuickGelu",), ("silu",))
    assert found.fused_away == ("t",)


def test_what_is_folded_to_a_constant_is_a_value_still(of_a_graph):
    def function(x: Tensor) -> Tensor:
        return x.masked_fill(torch.ones(4, 4).tril() == 0, -1.0)

    graph, found = of_a_graph(function, torch.randn(4, 4))
    assert found.values["eq"].op_types == ("Identity",)
    assert set(found.values["eq"].fused) >= {"ones", "tril", "eq"}
    onnx.checker.check_model(found.model)
    values = dict(onnx_values(found.model, graph.named_inputs(), graph.program.providers))
    assert torch.equal(values["eq"], torch.ones(4, 4).tril() == 0)
