"""A planted fault is named, whatever the names, the order and the copies."""

from __future__ import annotations

import random

import numpy as np
import onnx
from graph_text import model
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from pairs_of_models import ATTENTION, CONSTANTS, FAULTS, WIDTH, attention, partners, shuffled, weights

from dort_compare.onnx_diff import diff


def with_copies(original: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """The same model with an Identity, a cast there and back, or neither, behind values, and additions commuted."""
    rng = random.Random(seed)
    copy = onnx.ModelProto()
    copy.CopyFrom(original)
    outputs = {value.name for value in copy.graph.output}
    nodes, latest = [], {}
    for node in original.graph.node:
        new = onnx.NodeProto()
        new.CopyFrom(node)
        new.input[:] = [latest.get(name, name) for name in node.input]
        if node.op_type in ("Add", "Mul") and rng.random() < 0.5:
            new.input[:] = list(reversed(new.input))
        nodes.append(new)
        (result,) = node.output
        kind = rng.randrange(3)
        if result in outputs or not kind:
            continue
        latest[result] = f"{result}_copy"
        if kind == 1:
            nodes.append(helper.make_node("Identity", [result], [latest[result]]))
        else:
            nodes.append(helper.make_node("Cast", [result], [f"{result}_wide"], to=TensorProto.DOUBLE))
            nodes.append(helper.make_node("Cast", [f"{result}_wide"], [latest[result]], to=TensorProto.FLOAT))
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy


def test_a_model_agrees_with_itself_and_every_value_is_paired() -> None:
    found = diff(attention(), attention())
    assert found.verdict == "agree"
    assert all(first == second for second, first in partners(found).items())
    assert not found.findings.unpaired
    assert {row.status for row in found.rows} == {"equal"}


@settings(max_examples=8)
@given(st.integers(0, 2**31))
def test_names_order_copies_and_commuted_additions_do_not_matter(seed: int) -> None:
    first = attention()
    found = diff(first, shuffled(with_copies(first, seed), seed))
    assert found.verdict == "agree", str(found)
    assert set(partners(found).values()) >= {name for node in first.graph.node for name in node.output}
    assert not [value for value in found.findings.unpaired if value.model == "first"]


@settings(max_examples=8)
@given(st.integers(0, 2**31), st.sampled_from(sorted(FAULTS)))
def test_a_planted_fault_is_named_whatever_the_names_and_the_order(seed: int, fault: str) -> None:
    place, plant = FAULTS[fault]
    wrong = attention()
    plant(wrong.graph)
    found = diff(attention(), shuffled(wrong, seed))
    assert found.verdict == "diverge"
    assert [cause.row.pair.first for cause in found.findings.causes] == [place], str(found)


@settings(max_examples=8)
@given(st.integers(0, 2**31), st.sampled_from(sorted(FAULTS)))
def test_a_planted_fault_is_named_behind_copies(seed: int, fault: str) -> None:
    place, plant = FAULTS[fault]
    wrong = attention()
    plant(wrong.graph)
    found = diff(attention(), with_copies(wrong, seed))
    assert found.verdict == "diverge"
    assert [cause.row.pair.first for cause in found.findings.causes] == [place], str(found)


def test_three_faults_are_all_named() -> None:
    wrong = attention()
    for name in ("axis", "operator", "another weight"):
        FAULTS[name][1](wrong.graph)
    found = diff(attention(), shuffled(wrong, 1))
    assert {cause.row.pair.first for cause in found.findings.causes} == {"p", "wave", "v"}, str(found)


def test_a_constant_that_is_off_is_named_itself() -> None:
    other = model(ATTENTION, **{**CONSTANTS, "scale": np.float32(0.25 * 1.001)})
    found = diff(attention(), shuffled(other, 3))
    assert [cause.row.pair.first for cause in found.findings.causes] == ["scale"], str(found)


def test_bits_lost_between_two_casts_are_found() -> None:
    text = ATTENTION.replace("wave = Tanh(summed)", "h = Cast<to = 10>(summed)\n s = Cast<to = 1>(h)\n wave = Tanh(s)")
    found = diff(attention(), model(text, **CONSTANTS))
    assert found.first_divergence is not None
    assert found.first_divergence.row.pair.second == "s", str(found)


ROUNDED_TWICE = """m (float[6,8] x, float[6,8] w, float[6,8] p, float[6,8] q) => (float[6,8] y, float[6,8] z) {{
    narrow = Cast<to = 10>(x)
    wide = Cast<to = 1>(narrow)
    {0}
    y = Mul(a, p)
    z = Mul(b, q)
}}"""


def test_expressions_that_are_one_but_for_a_cast_are_told_apart_by_their_content() -> None:
    plain, rounded = "a = Sub(w, x)", "b = Sub(w, wide)"
    one, other = (model(ROUNDED_TWICE.format("\n".join(order))) for order in ((plain, rounded), (rounded, plain)))
    found = diff(one, other)
    assert found.verdict == "agree", str(found)
    assert partners(found) == {name: name for name in partners(found)}


def test_another_decomposition_agrees() -> None:
    fused = (
        "agraph (float[4, 8] x) => (float[4, 8] y) { h = MatMul(x, w)\n y = LayerNormalization<epsilon = 1e-5>(h, g) }"
    )
    steps = """agraph (float[4, 8] x) => (float[4, 8] y) {
        h = Gemm<transB = 1>(x, wt)
        mean = ReduceMean<keepdims = 1>(h, last)
        d = Sub(h, mean)
        dd = Mul(d, d)
        var = ReduceMean<keepdims = 1>(dd, last)
        shifted = Add(var, eps)
        root = Sqrt(shifted)
        normal = Div(d, root)
        y = Mul(normal, g)
    }"""
    w, g = weights("w")["w"], np.linspace(0.5, 2, WIDTH).astype(np.float32)
    first = model(fused, w=w, g=g)
    constants = {"wt": w.T.copy(), "g": g, "last": np.array([-1]), "eps": np.float32(1e-5)}
    found = diff(first, model(steps, **constants))
    assert found.verdict == "agree", str(found)
    assert {"h", "y"} <= set(partners(found).values())
    reasons = {value.name: value.reason for value in found.findings.unpaired}
    assert reasons["var"].startswith("a step on the way to 'y'")
    wrong = diff(first, model(steps, **{**constants, "eps": np.float32(1e-1)}))
    assert wrong.first_divergence is not None
    assert wrong.first_divergence.row.pair.second == "y", str(wrong)
    assert any("Sqrt" in node for node in wrong.first_divergence.nodes[1])


def test_unrelated_models_diverge_and_say_why() -> None:
    other = model("agraph (float[3] a) => (float[3] b) { c = Exp(a)\n b = Cos(c) }")
    found = diff(attention(), other)
    assert found.verdict == "diverge"
    assert "nothing was compared" in found.findings.reason
    assert {value.model for value in found.findings.unpaired} == {"first", "second"}


def test_roundings_that_add_up_are_no_departure_and_are_told() -> None:
    text = "agraph (float[4, 8] x) => (float[4, 8] y) { h = Mul(x, k)\n d = Sub(h, x)\n y = Mul(d, t) }"
    first = model(text, k=np.float32(1 + 2**-22), t=np.float32(2**20))
    split = (
        "agraph (float[4, 8] x) => (float[4, 8] y) { g = Mul(x, two)\n h = Mul(g, k)\n d = Sub(h, x)\n y = Mul(d, t) }"
    )
    nearly = {"two": np.float32(2), "k": np.float32((1 + 2**-23) / 2), "t": np.float32(2**20)}
    found = diff(first, model(split, **nearly))
    assert found.verdict == "agree", str(found)
    assert any("rounding that has accumulated" in note for note in found.findings.notes), str(found)
