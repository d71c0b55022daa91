"""Bodies of control flow, and local functions."""

from __future__ import annotations

import onnx
import pytest
from graph_text import model
from pairs_of_models import node_of, partners

from dort_compare.errors import UsageError
from dort_compare.onnx_diff import diff


def test_bodies_are_compared_at_their_results_and_named() -> None:
    text = """agraph (float[4] x, bool c) => (float[4] y) {
        big = Exp(x)
        z = If (c) <
            then_branch = left () => (float[4] l) { l = Neg(big) },
            else_branch = right () => (float[4] r) { r = Relu(big) }
        >
        y = Add(z, x)
    }"""
    found = diff(model(text), shuffled_body(model(text)))
    assert found.verdict == "agree", str(found)
    assert any("not entered" in note and "If" in note for note in found.findings.notes)
    wrong = model(text)
    node_of(wrong.graph, "z").attribute[0].g.node[0].op_type = "Abs"
    node_of(wrong.graph, "z").attribute[1].g.node[0].op_type = "Abs"
    broken = diff(model(text), wrong)
    assert broken.first_divergence is not None
    assert broken.first_divergence.row.pair.second == "z"


def shuffled_body(original: onnx.ModelProto) -> onnx.ModelProto:
    for name in ("big", "z"):
        renamed = onnx.ModelProto.FromString(original.SerializeToString())
        for node in renamed.graph.node:
            node.input[:] = [f"{n}_2" if n == name else n for n in node.input]
            node.output[:] = [f"{n}_2" if n == name else n for n in node.output]
            for attribute in node.attribute:
                for inner in attribute.g.node:
                    inner.input[:] = [f"{n}_2" if n == name else n for n in inner.input]
        original = renamed
    return original


def test_local_functions_are_entered() -> None:
    called = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 18, "own" : 1]>
        agraph (float[4] x) => (float[4] y) { z = own.double(x)\n y = Exp(z) }
        <domain: "own", opset_import: ["" : 18]> double (a) => (b) { b = Add(a, a) }""")
    plain = model("agraph (float[4] x) => (float[4] y) { z = Add(x, x)\n y = Exp(z) }")
    found = diff(plain, called)
    assert found.verdict == "agree", str(found)
    assert {"z", "y"} <= set(partners(found).values())


def calling(depth: int) -> onnx.ModelProto:
    """Functions that each call the next one twice."""
    own = '<domain: "own", opset_import: ["" : 18, "own" : 1]>'
    calls = [f"{own} f{i} (a) => (b) {{ c = own.f{i + 1}(a)\n b = own.f{i + 1}(c) }}" for i in range(depth)]
    return onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 18, "own" : 1]>
        agraph (float[4] x) => (float[4] y) {{ y = own.f0(x) }}
        {" ".join(calls)} {own} f{depth} (a) => (b) {{ b = Neg(a) }}"""
    )


def test_functions_that_grow_without_end_are_refused() -> None:
    plain = model("agraph (float[4] x) => (float[4] y) { y = Neg(x) }")
    assert diff(calling(2), plain).verdict == "diverge"  # an even number of signs turned
    with pytest.raises(
        UsageError, match=r"^second has local functions that make 1.1e\+12 nodes of it, more than 1e\+06$"
    ):
        diff(plain, calling(40))
