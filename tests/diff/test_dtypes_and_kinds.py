"""Half precision, and what is no number that is compared."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from graph_text import model
from onnx import TensorProto, helper
from pairs_of_models import weights

from dort_compare.onnx_diff import diff


def test_sequences_are_named_as_not_compared() -> None:
    text = """agraph (float[4] x) => (float[8] y) {
        e = Exp(x)
        s = SequenceConstruct(e, x)
        y = ConcatFromSequence<axis = 0>(s)
    }"""
    found = diff(model(text), model(text))
    assert found.verdict == "agree", str(found)
    assert any("sequences" in note for note in found.findings.notes)


def test_half_precision_is_judged_by_its_own_rounding() -> None:
    text = "agraph ({0}[4, 8] x) => ({0}[4, 8] y) {{ h = MatMul(x, w)\n y = Tanh(h) }}"
    w = weights("w")["w"]
    first = model(text.format("float16"), w=w.astype(np.float16))
    wide = """agraph (float16[4, 8] x) => (float16[4, 8] y) {
        c = Cast<to = 1>(x)
        h = MatMul(c, w)
        t = Tanh(h)
        y = Cast<to = 10>(t)
    }"""
    found = diff(first, model(wide, w=w.astype(np.float16).astype(np.float32)))
    assert found.verdict == "agree", str(found)


def test_bfloat16_runs_on_the_cpu() -> None:
    text = "agraph (bfloat16[4, 8] x) => (bfloat16[4, 8] y) { h = MatMul(x, w)\n y = Tanh(h) }"
    both = model(text)
    both.graph.initializer.append(
        helper.make_tensor("w", TensorProto.BFLOAT16, [8, 8], weights("w")["w"].flatten().tolist())
    )
    assert diff(both, both).verdict == "agree"


def test_strings_among_constants_and_casts_are_not_compared() -> None:
    spelled = """
    agraph (float[4, 8] x) => (float[4, 8] y) {
        s = Cast<to = 8>(x)
        joined = Concat<axis = 0>(s, words)
        t = Cast<to = 1>(s)
        y = Tanh(t)
    }"""
    other = model(spelled, words=np.full((1, 8), "0", dtype=object))
    plain = model("agraph (float[4, 8] x) => (float[4, 8] y) { y = Tanh(x) }")
    for first, second in ((plain, other), (other, plain), (other, other)):
        found = diff(first, second, {"x": torch.arange(1.0, 33.0).reshape(4, 8) / 32})
        assert found.verdict == "agree", str(found)
        assert any("strings or numbers of few bits and not compared" in note for note in found.findings.notes)


FEW_BITS = {
    "int4": "q = QuantizeLinear<output_dtype = 22>(x, s)\n d = DequantizeLinear(q, s)",
    "int4 by its zero": "z = Cast<to = 22>(s)\n q = QuantizeLinear(x, s, z)\n d = DequantizeLinear(q, s)",
    "float8": "q = Cast<to = 17>(x)\n d = Cast<to = 1>(q)",
}


@pytest.mark.parametrize("steps", FEW_BITS.values(), ids=FEW_BITS)
def test_numbers_of_few_bits_are_not_compared_but_what_is_made_of_them(steps: str) -> None:
    text = f"agraph (float[4, 8] x) => (float[4, 8] y) {{ {steps}\n y = Tanh(d) }}"
    made = [model(text, s=np.float32(0.2)), model("agraph (float[4, 8] x) => (float[4, 8] y) { y = Tanh(x) }")]
    for each in made:
        each.opset_import[0].version = 21
    found = diff(made[0], made[0])
    assert found.verdict == "agree", str(found)
    assert diff(*made).verdict == "diverge"


@pytest.mark.parametrize(("extreme", "verdict"), [(np.nan, "agree"), (-np.inf, "diverge"), (1, "diverge")])
def test_not_a_number_is_paired_with_itself_among_infinities(extreme: float, verdict: str) -> None:
    text = """
        agraph (float[8, 8] x) => (float[8, 8] y) {{
            cast = Cast<to = {}>(x)
            large = Greater(cast, one)
            small = Less(cast, minus_one)
            bounded = Where(large, low, cast)
            cut = Where(small, none, bounded)
            y = Cast<to = 1>(cut)
        }}"""
    numbers = {"one": 1, "minus_one": -1, "low": -np.inf}
    first = model(text.format(10), **{name: np.float16(n) for name, n in (numbers | {"none": np.nan}).items()})
    second = model(text.format(1), **{name: np.float32(n) for name, n in (numbers | {"none": extreme}).items()})
    assert diff(first, second).verdict == verdict
    assert diff(second, first).verdict == verdict
