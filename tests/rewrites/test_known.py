"""What is computed of constants and sizes alone is known before a model runs; nothing else is."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from dort_compare.rewrites.known import known

KNOWN = {
    "a constant": ("y = Constant<value = float[2] {1.0, 2.0}>()", [1, 2]),
    "what becomes of constants": ("n = Neg(c) y = Add(n, c)", [0, 0]),
    "a shape": ("s = Shape(x) y = Cast<to = 1>(s)", [4, 3]),
    "a part of a shape": ("s = Shape<start = 1>(x) y = Cast<to = 1>(s)", [3]),
    "the end of a shape": ("s = Shape<start = -1, end = 2>(x) y = Cast<to = 1>(s)", [3]),
}
UNKNOWN = {
    "an input": "y = Neg(x)",
    "what an input goes into": "n = Neg(c) r = ReduceSum(x) y = Add(n, r)",
    "a shape that is not known": "s = Shape(free) y = Cast<to = 1>(s)",
    "chance": "y = RandomNormal<shape = [2]>()",
    "what becomes of chance": "r = RandomNormalLike(c) y = Neg(r)",
}


def value(body: str) -> ir.Value:
    text = '<ir_version: 10, opset_import: ["" : 20]> graph (float[4, 3] x, float[n] free) => (float[?] y) '
    proto = onnx.parser.parse_model(text.replace("[?]", "[m]") + "<float[2] c = {1.0, 2.0}> { " + body + " }")
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto)).graph.outputs[0]


@pytest.mark.parametrize("case", KNOWN)
def test_it_is_known(case: str) -> None:
    body, expected = KNOWN[case]
    found = value(body)
    for _ in range(2):
        array = known(found)
        assert array is not None
        np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize("case", UNKNOWN)
def test_it_is_not_known(case: str) -> None:
    assert known(value(UNKNOWN[case])) is None


def test_what_a_node_with_graphs_in_it_makes_is_not_known() -> None:
    body = "k = Constant<value = bool {1}>() y = If<then_branch = g () => (float[2] a) { a = Neg(c) }, "
    assert known(value(body + "else_branch = g () => (float[2] b) { b = Identity(c) }>(k)")) is None
