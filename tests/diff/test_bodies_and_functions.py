"""Bodies of control flow, and local functions."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from graph_text import model
from onnxruntime import InferenceSession
from pairs_of_models import node_of, partners
from torch.nn import functional as F

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


LEAKY = """<domain: "own", opset_import: ["" : 18]>
    leaky <alpha: float = 0.5> (a) => (b) { b = LeakyRelu <alpha: float = @alpha> (a) }
    <domain: "own", overload: "steep", opset_import: ["" : 18, "own" : 1]>
    leaky <alpha: float = 0.75> (a) => (b) { b = own.leaky <alpha: float = @alpha> (a) }"""
CALLERS = """<domain: "own", opset_import: ["" : 18, "own" : 1]> around (a) => (b) { b = own.leaky(a) }
    <domain: "own", opset_import: ["" : 18, "own" : 1]>
    handing_on <alpha> (a) => (b) { b = own.leaky <alpha: float = @alpha> (a) }"""


@pytest.mark.parametrize(
    ("call", "alpha"),
    [
        ("own.leaky(x)", 0.5),
        ("own.leaky <alpha = 0.25> (x)", 0.25),
        ("own.leaky:steep(x)", 0.75),
        ("own.around(x)", 0.5),
        ("own.handing_on(x)", 0.5),
        ("own.handing_on <alpha = 0.25> (x)", 0.25),
        (
            "If (c) <then_branch = left () => (float[4] l) { l = own.leaky(x) }, "
            "else_branch = right () => (float[4] r) { r = own.leaky(x) }>",
            0.5,
        ),
    ],
)
def test_what_a_call_leaves_out_is_the_default_of_the_function(call: str, alpha: float) -> None:
    """ONNX Runtime computes the model as it is, with its functions."""
    main = f"agraph (float[4] x, bool c) => (float[4] y) {{ z = {call}\n y = Exp(z) }}"
    called = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18, "own" : 1]>{main}{LEAKY}{CALLERS}')
    x = torch.tensor([-2.0, -1.0, 1.0, 2.0])
    (right,) = InferenceSession(called.SerializeToString()).run(None, {"x": x.numpy(), "c": np.array(True)})
    assert torch.allclose(torch.from_numpy(right), F.leaky_relu(x, alpha).exp())
    text = "agraph (float[4] x, bool c) => (float[4] y) {{ z = LeakyRelu <alpha = {}> (x)\n y = Exp(z) }}"
    inputs = {"x": x, "c": torch.tensor(True)}
    found = diff(model(text.format(alpha)), called, inputs)
    assert found.verdict == "agree", str(found)
    wrong = diff(called, model(text.format(0.01)), inputs)  # what LeakyRelu takes by itself
    assert wrong.first_divergence is not None
    assert wrong.first_divergence.row.pair.second == "z"


@pytest.mark.parametrize("default", ["", "<alpha: float = 0.5>"])
def test_functions_that_call_themselves_are_one_line(default: str) -> None:
    own = '<domain: "own", opset_import: ["" : 18, "own" : 1]>'
    called = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 18, "own" : 1]>
        agraph (float[4] x) => (float[4] y) {{ y = own.f(x) }}
        {own} f {default} (a) => (b) {{ b = own.g(a) }}
        {own} g (a) => (b) {{ b = own.f(a) }}""")
    cycle = "own::(?:f -> own::g -> own::f|g -> own::f -> own::g)"
    with pytest.raises(UsageError, match=rf"^.* has local functions that [^\n]*: [^()\n]*{cycle}\b[^\n]*$"):
        diff(called, called)


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
