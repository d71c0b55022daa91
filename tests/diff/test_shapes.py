"""Shapes that are computed in other words."""

from __future__ import annotations

import numpy as np
import pytest
from graph_text import model
from pairs_of_models import partners, weights

from dort_compare.errors import ExecutionError
from dort_compare.onnx_diff import diff

ONE_STATE = """agraph (float[1, 8] x) => (float[1, 8] y) {
    shape = Concat<axis = 0>(one, eight)
    h = Expand(zero, shape)
    s = Add(x, h)
    shape2 = Concat<axis = 0>(one, eight)
    h2 = Expand(zero, shape2)
    t = Tanh(s)
    y = Add(t, h2)
}"""
TWO_STATES = """agraph (float[1, 8] x) => (float[1, 8] y) {
    shape = Concat<axis = 0>(two, eight)
    h = Expand(zero, shape)
    h1 = Slice(h, zeroth, one, zeroth)
    s = Add(x, h1)
    h2 = Slice(h, one, two, zeroth)
    v = Reshape(h2, whole)
    t = Tanh(s)
    y = Add(t, v)
}"""
SIZES = {"one": np.array([1]), "two": np.array([2]), "eight": np.array([8]), "zeroth": np.array([0])}


def test_a_pair_of_shapes_on_which_nodes_fail_is_dropped() -> None:
    """In like places stand the shape of one state and of two: on the former the latter's nodes cannot run."""
    first = model(ONE_STATE, one=SIZES["one"], eight=SIZES["eight"], zero=np.float32(0))
    second = model(TWO_STATES, **SIZES, whole=np.array([1, 8]), zero=np.float32(0))
    for one, other in ((first, second), (second, first)):
        found = diff(one, other)
        assert found.verdict == "agree", str(found)
        assert partners(found)["y"] == "y"


def test_a_node_that_fails_on_its_own_values_is_an_error_still() -> None:
    wrong = TWO_STATES.replace("Reshape(h2, whole)", "Reshape(h2, zeroth)")
    second = model(wrong, **SIZES, zero=np.float32(0))
    with pytest.raises(ExecutionError, match="second: ONNX Runtime failed"):
        diff(model(ONE_STATE, one=SIZES["one"], eight=SIZES["eight"], zero=np.float32(0)), second)


IN_TWO_STEPS = """
    agraph (float[2, 2, 3, 2] x) => (float[6, 4] y) {
        t = Transpose<perm = [0, 2, 1, 3]>(x)
        r0 = Reshape(t, wide)
        r = Reshape(r0, flat)
        m = MatMul(r, w)
        h = Tanh(m)
        b = Reshape(h, back)
        t2 = Transpose<perm = [0, 2, 1, 3]>(b)
        q0 = Reshape(t2, wide)
        q = Reshape(q0, also_flat)
        y = MatMul(q, w)
    }"""


IN_ONE_STEP = """
    agraph (float[2, 2, 3, 2] x) => (float[6, 4] y) {
        t = Transpose<perm = [0, 2, 1, 3]>(x)
        r = Reshape(t, sizes)
        m = MatMul(r, w)
        h = Tanh(m)
        b = Reshape(h, back)
        t2 = Transpose<perm = [0, 2, 1, 3]>(b)
        q = Reshape(t2, sizes)
        y = MatMul(q, w)
    }"""


@pytest.mark.parametrize("seed", [0, 1])
def test_a_shape_said_in_other_words_is_no_cause_before_a_fault(seed: int) -> None:
    shared = {"w": weights("w")["w"][:4, :4], "back": np.array([2, 2, 3, 2])}
    two = {"wide": np.array([2, 3, 4]), "flat": np.array([-1, 4]), "also_flat": np.array([-1, 4])}
    first = model(IN_TWO_STEPS, **shared, **two)
    sizes = np.array([6, 4])
    assert diff(first, model(IN_ONE_STEP, sizes=sizes, **shared), seed=seed).verdict == "agree"
    found = diff(first, model(IN_ONE_STEP.replace("Tanh", "Sigmoid"), sizes=sizes, **shared), seed=seed)
    assert [cause.row.pair.second for cause in found.findings.causes] == ["h"], str(found)


def test_a_wrong_shape_is_the_cause_also_where_all_runs() -> None:
    steps = "e = Expand(x, s)\n t = Tanh(e)\n y = ReduceSum<keepdims = 0>(t, axis)"
    text = f"agraph (float[1, 6] x) => (float[6] y) {{ {steps} }}"
    first, second = (model(text, s=np.array([rows, 6]), axis=np.array([0])) for rows in (3, 2))
    for one, other in ((first, second), (second, first)):
        found = diff(one, other)
        assert [cause.row.pair.second for cause in found.findings.causes] == ["s"], str(found)
