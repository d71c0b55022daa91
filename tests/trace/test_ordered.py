"""Nodes in an order in which they can run, in nested graphs and functions too."""

from __future__ import annotations

import onnx
import pytest

from dort_compare.trace.ordered import in_order

BODIES = """<ir_version: 10, opset_import: ["" : 18, "own" : 1]> agraph (float[4] x, bool c) => (float[4] y) {
    y = Add(z, a)
    z = If (c) <
        then_branch = left () => (float[4] l) { l = Neg(m)\n m = Abs(a) },
        else_branch = right () => (float[4] r) { r = own.twice(a) }
    >
    unread = Neg(x)
    a = Exp(x)
}
<domain: "own", opset_import: ["" : 18]> twice (v) => (w) { w = Add(u, v)\n u = Identity(v) }"""


def made(graph: onnx.GraphProto | onnx.FunctionProto) -> list[str]:
    return [node.output[0] for node in graph.node]


def test_nodes_are_sorted_and_stay_in_place_where_they_can() -> None:
    model = onnx.parser.parse_model(BODIES)
    found = in_order(model)
    assert made(found.graph) == ["unread", "a", "z", "y"]
    left = next(node for node in found.graph.node if node.op_type == "If").attribute[0].g
    assert made(left) == ["m", "l"]
    assert made(found.functions[0]) == ["u", "w"]
    assert made(model.graph) == ["y", "z", "unread", "a"], "the caller's model is not touched"


def test_a_sorted_model_is_not_copied() -> None:
    model = in_order(onnx.parser.parse_model(BODIES))
    assert in_order(model) is model


@pytest.mark.parametrize("read", ["y", "nowhere"])
def test_what_cannot_be_sorted_stays_as_it_is(read: str) -> None:
    text = f"agraph (float[4] x) => (float[4] y) {{ a = Add(x, {read})\n y = Neg(a) }}"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]> {text}')
    assert made(in_order(model).graph) == ["a", "y"]
