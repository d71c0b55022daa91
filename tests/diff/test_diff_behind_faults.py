"""Two ONNX models of which one is wrong: what only stands in a like place behind the fault is not blamed beside it."""

from __future__ import annotations

import numpy as np
import pytest
from graph_text import model
from pairs_of_models import ROLLED, SHARED, counted_from_the_end

from dort_compare.onnx_diff import diff
from dort_compare.report.diff import Diff


def blamed(found: Diff) -> list[str]:
    return [cause.row.pair.second for cause in found.findings.causes]


WRONG = {
    "bias": {"bias": SHARED["bias"] + np.array([0, 0.1, 0, 0], np.float32)},
    "w": {"w": SHARED["w"] * np.float32(1.001)},
    "six": {"six": np.array([5])},
    "s": {},
}


@pytest.mark.parametrize("fault", WRONG)
def test_slices_with_other_words_for_the_same_ends(fault: str) -> None:
    first, ours = counted_from_the_end(), {**SHARED, "end": np.array([8]), "six": np.array([6])}
    assert diff(first, model(ROLLED, **ours)).verdict == "agree"
    text = ROLLED.replace("Add(h, bias)", "Sub(h, bias)") if fault == "s" else ROLLED
    found = diff(first, model(text, **{**ours, **WRONG[fault]}))
    assert blamed(found)[0] == fault, str(found)
    assert fault == "six" or len(blamed(found)) == 1, str(found)


KEYS = """
    agraph (float[2, 2, 4, 3] x) => (float[2, 2, 4, 4] y) {
        e = Mul(x, g)
        t = Transpose<perm = [0, 1, 3, 2]>(e)
        k = Mul(t, root)
        q = Mul(x, root)
        m = MatMul(q, k)
        y = Softmax(m)
    }"""
FLAT_KEYS = KEYS.replace(
    "t = Transpose<perm = [0, 1, 3, 2]>(e)",
    "f = Reshape(e, flat)\n u = Transpose<perm = [0, 2, 1]>(f)\n t = Reshape(u, back)",
)


def test_a_transpose_of_fewer_dimensions() -> None:
    """One model transposes each head of a batch, the other one all heads as one batch."""
    shared = {"g": np.array([0.5, 1, 2], np.float32), "root": np.float32(0.75)}
    ours = {**shared, "flat": np.array([4, 4, 3]), "back": np.array([2, 2, 3, 4])}
    assert diff(model(KEYS, **shared), model(FLAT_KEYS, **ours)).verdict == "agree"
    found = diff(model(KEYS, **shared), model(FLAT_KEYS.replace("e = Mul", "e = Add"), **ours))
    assert blamed(found) == ["e"], str(found)


POOLED = """
    agraph (float[1, 4, 6, 6] x) => (float[1, 4] y) {
        r = Relu(x)
        d = Conv<auto_pad = "NOTSET", kernel_shape = [1, 1]>(r, w, b)
        s = Relu(d)
        t = MaxPool<kernel_shape = [2, 2]>(s)
        y = ReduceMean<keepdims = 0>(t, axes)
    }"""
NORMALIZED_AND_POOLED = """
    agraph (float[1, 4, 6, 6] x) => (float[1, 4] y) {
        r = Relu(x)
        k = Conv(r, w, b)
        d = BatchNormalization(k, g, o, m, v)
        s = Relu(d)
        t = MaxPool<kernel_shape = [2, 2]>(s)
        n = IsNaN(s)
        f = Cast<to = 1>(n)
        p = MaxPool<kernel_shape = [2, 2]>(f)
        z = Greater(p, zero)
        u = Where(z, nan, t)
        y = ReduceMean<keepdims = 0>(u, axes)
    }"""


@pytest.mark.parametrize("name", ["w", "b"])
def test_a_folded_step_that_nothing_paired_reads(name: str) -> None:
    """The constants into which a normalization is folded are not the other model's, wrong or right."""
    generator = np.random.default_rng(1)
    b, g, o, m, v = (generator.standard_normal(4).astype(np.float32) for _ in range(5))
    w, v = generator.standard_normal((4, 4, 1, 1)).astype(np.float32), 0.5 + v**2
    axes, scale = {"axes": np.array([2, 3])}, g / np.sqrt(v + 1e-5)
    more = {"zero": np.float32(0), "nan": np.float32(np.nan)}
    first = model(NORMALIZED_AND_POOLED, w=w, b=b, g=g, o=o, m=m, v=v, **axes, **more)
    folded = {"w": w * scale[:, None, None, None], "b": (b - m) * scale + o}
    assert diff(first, model(POOLED, **folded, **axes)).verdict == "agree"
    folded[name] = np.ascontiguousarray(folded[name][[1, 0, 2, 3]])
    found = diff(first, model(POOLED, **folded, **axes))
    (cause,) = found.findings.causes
    assert "Conv d" in cause.nodes[1], str(found)


def test_a_value_that_stands_for_several_of_the_first_model_is_blamed_once() -> None:
    """The first model holds one constant twice, the second once."""
    text = "agraph (float[2, 4] x) => (float[2, 4] y) {{ q = Mul(x, k)\n p = Exp(q)\n r = Mul(p, {})\n y = Tanh(r) }}"
    scale = np.array([0.5, 1, 1.5, 2], np.float32)
    first = model(text.format("again"), k=scale, again=scale)
    assert diff(first, model(text.format("k"), k=scale)).verdict == "agree"
    found = diff(first, model(text.format("k"), k=scale * np.float32(1.001)))
    assert blamed(found) == ["k"], str(found)
    assert sum(row.status == "diverges" for row in found.rows) == 2


RECURRENT = """
    agraph (float[2, 7, 8] x) => (float[7, 2, 3] y, float[1, 2, 12] last) {
        steps = Transpose<perm = [1, 0, 2]>(x)
        all, last = GRU<hidden_size = 12, linear_before_reset = 1>(steps, w, r, b, , start)
        turned = Transpose<perm = [0, 2, 1, 3]>(all)
        flat = Reshape(turned, sizes)
        y = MatMul(flat, v)
    }"""
TURNED = "turned = Transpose<perm = [0, 2, 1, 3]>({})\n        flat = Reshape(turned, sizes)"
SQUEEZED = "flat = Squeeze({}, one)"
TWO_LAYERS = """
    agraph (float[7, 2, 8] x) => (float[7, 1, 2, 12] all, float[1, 2, 12] last) {
        before = RNN<hidden_size = 12>(x, u, q)
        turned = Transpose<perm = [0, 2, 1, 3]>(before)
        flat = Reshape(turned, sizes)
        all, last = GRU<hidden_size = 12, linear_before_reset = 1>(flat, t, r, b)
    }"""


def recurrent_weights() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    shapes = {"w": (1, 36, 8), "r": (1, 36, 12), "b": (1, 72), "v": (12, 3), "t": (1, 36, 12)}
    shapes |= {"u": (1, 12, 8), "q": (1, 12, 12)}
    drawn = {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return {**drawn, "start": np.zeros((1, 2, 12), np.float32), "sizes": np.array([7, 2, 12]), "one": np.array([1])}


def test_a_node_that_leaves_out_an_operand_has_all_others_in_common() -> None:
    wrong = RECURRENT.replace(TURNED.format("all"), SQUEEZED.format("all")).replace("reset = 1", "reset = 0")
    found = diff(model(RECURRENT, **recurrent_weights()), model(wrong, **recurrent_weights()))
    assert found.first_divergence is not None
    assert found.first_divergence.row.pair.first == "all", str(found)
    assert found.first_divergence.reason.endswith("is noise; linear_before_reset 0 instead of 1"), str(found)


@pytest.mark.parametrize(("text", "layer"), [(RECURRENT, "all"), (TWO_LAYERS, "before")], ids=["one", "two"])
def test_a_node_of_two_results_is_blamed_once_and_for_what_is_not_the_same(text: str, layer: str) -> None:
    """Two exporters flatten what a recurrent layer makes in two ways."""
    constants = recurrent_weights()
    first, other = model(text, **constants), text.replace(TURNED.format(layer), SQUEEZED.format(layer))
    assert other != text
    assert diff(first, model(other, **constants)).verdict == "agree"
    found = diff(first, model(other.replace("linear_before_reset = 1", "linear_before_reset = 0"), **constants))
    (cause,) = found.findings.causes
    assert (cause.row.pair.first, cause.row.pair.second) == ("all", "all"), str(found)
    assert cause.reason.endswith("is noise; linear_before_reset 0 instead of 1"), str(found)
    assert {row.pair.second for row in found.rows if row.status == "diverges"} == {"all", "last"}


def test_results_of_one_node_that_are_returned_for_each_other_are_both_told() -> None:
    text = "agraph (float[4, 8] x) => (float[2, 8] p, float[2, 8] q) {{ {} = Split<num_outputs = 2>(x) }}"
    found = diff(model(text.format("p, q")), model(text.format("q, p")))
    assert sorted(blamed(found)) == ["p", "q"], str(found)


BRANCHES = """
    agraph (float[4, 8] x) => (float[4, 8] a, float[4, 8] b) {{
        sum = ReduceSum<keepdims = 0>(x)
        is_more = Greater(sum, least)
        a, b = If (is_more) <
            then_branch = then () => (float[4, 8] ta, float[4, 8] tb) {{ ta = {}(x) tb = {}(x) }},
            else_branch = other () => (float[4, 8] ea, float[4, 8] eb) {{ ea = Exp(x) eb = Exp(x) }}
        >
    }}
"""


def test_results_of_one_node_with_bodies_are_both_told() -> None:
    least = {"least": np.float32(-1e9)}
    found = diff(model(BRANCHES.format("Sin", "Cos"), **least), model(BRANCHES.format("Tan", "Tanh"), **least))
    assert blamed(found) == ["a", "b"], str(found)
