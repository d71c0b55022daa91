"""Models of which nothing can be compared."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from graph_text import model
from onnx import TensorProto, helper, numpy_helper
from pairs_of_models import CONSTANT, attention

from dort_compare.errors import ExecutionError, UsageError
from dort_compare.onnx_diff import diff


def test_a_model_whose_nodes_are_in_no_order_is_read() -> None:
    backwards = attention()
    nodes = list(reversed(backwards.graph.node))
    del backwards.graph.node[:]
    backwards.graph.node.extend(nodes)
    for first, second in ((attention(), backwards), (backwards, attention())):
        found = diff(first, second)
        assert found.verdict == "agree", str(found)
        assert not found.findings.unpaired
    assert backwards.graph.node[0].output[0] == "y"


def test_a_model_that_goes_in_a_circle_is_refused() -> None:
    circle = model("agraph (float[4] x) => (float[4] y) { a = Add(x, y)\n y = Neg(a) }")
    with pytest.raises(
        UsageError, match=r"^second: node '' \(Add\) reads 'y', which nothing before it makes; it is no"
    ):
        diff(model("agraph (float[4] x) => (float[4] y) { y = Neg(x) }"), circle)


def test_constants_that_are_the_same_are_no_comparison() -> None:
    """Of what neither returns."""
    first = model("agraph (float[2] x) => (float[2] y) <float[2] k = {1.0, 2.0}> { y = Add(x, k) }")
    second = model("agraph (float[2] x, float[3] z) => (float[3] y) <float[2] k = {1.0, 2.0}> { y = Exp(z) }")
    found = diff(first, second)
    assert found.verdict == "diverge"
    assert found.findings.reason.startswith("nothing was compared")


def test_a_model_without_outputs_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^second holds no graph; give an ONNX model$"):
        diff(model(CONSTANT), onnx.ModelProto())
    with pytest.raises(UsageError, match=r"^second returns nothing; give its graph outputs$"):
        diff(model(CONSTANT), model("agraph (float[2] x) => () { y = Exp(x) }"))


def test_tensors_without_elements_are_no_comparison() -> None:
    one, other = (f"agraph (float[0, 3] x) => (float[0, 3] y) {{ y = {operator}(x) }}" for operator in ("Exp", "Neg"))
    found = diff(model(one), model(other))
    assert found.verdict == "diverge"
    assert found.findings.reason.startswith("nothing was compared: all that both models compute is empty")


def test_an_input_without_a_name_and_a_sparse_constant_are_one_line() -> None:
    right = model("agraph (float[2] x) => (float[2] y) { y = Relu(x) }")
    nameless = onnx.ModelProto.FromString(right.SerializeToString())
    nameless.graph.input.append(helper.make_tensor_value_info("", TensorProto.FLOAT, [2]))
    with pytest.raises(UsageError, match="second takes an input without a name"):
        diff(right, nameless)
    values = numpy_helper.from_array(np.ones(1, np.float32), "values")
    indices = numpy_helper.from_array(np.zeros(1, np.int64), "indices")
    sparse = onnx.ModelProto.FromString(right.SerializeToString())
    constant = helper.make_node("Constant", [], ["c"], sparse_value=helper.make_sparse_tensor(values, indices, [2]))
    sparse.graph.node.insert(0, constant)
    with pytest.raises(UsageError, match="second holds sparse constants, which are not read; make them dense"):
        diff(right, sparse)


@pytest.mark.parametrize("op_type", ["Cos", "Constant"])
def test_a_node_without_outputs_is_one_line(op_type: str) -> None:
    right = model("agraph (float[2] x) => (float[2] y) { y = Relu(x) }")
    wrong = onnx.ModelProto.FromString(right.SerializeToString())
    given = {"value_float": 1.0} if op_type == "Constant" else {}
    wrong.graph.node.append(helper.make_node(op_type, [] if given else ["x"], [], name="n", **given))
    with pytest.raises(UsageError, match=rf"first has a node 'n' \({op_type}\) without outputs; remove it"):
        diff(wrong, right, engine="reference")


def test_a_version_of_operators_that_no_number_of_theirs_holds_is_one_line() -> None:
    right = model("agraph (float[2] x) => (float[2] y) { y = Relu(x) }")
    wrong = onnx.ModelProto.FromString(right.SerializeToString())
    wrong.opset_import[0].version = 2**40
    with pytest.raises(ExecutionError, match="second: ONNX Runtime failed"):
        diff(right, wrong)
