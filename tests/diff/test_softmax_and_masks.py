"""Two ways to a softmax, and masks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from graph_text import model
from pairs_of_models import weights

from dort_compare.onnx_diff import diff

SCORES = """
    agraph (float[12, 8] x) => (float[12, 8] y) {
        q = MatMul(x, wq)
        k = MatMul(x, wk)
        v = MatMul(x, wv)
        kt = Transpose<perm = [1, 0]>(k)
        scores = MatMul(q, kt)
        s = Mul(scores, scale)
"""


BY_THE_LARGEST = """
        m = ReduceMax(s, axis)
        d = Sub(s, m)
        e = Exp(d)
        z = ReduceSum(e, axis)
        p = Div(e, z)
        mixed = MatMul(p, v)
        y = Add(mixed, x)
    }"""


BY_THE_SUM = """
        l = ReduceLogSumExp<keepdims = 0>(s, axis)
        i = Identity(l)
        u = Unsqueeze(i, axis)
        d = Sub(s, u)
        p = Exp(d)
        mixed = MatMul(p, v)
        y = Add(mixed, x)
    }"""


@pytest.mark.parametrize("is_reverse", [False, True])
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("scale", [0.25, 1, 2, 4])
def test_two_ways_to_a_softmax_agree(scale: float, seed: int, is_reverse: bool) -> None:
    """The largest score and the logarithm of the sum stand in one place, and hold nearly the same of large scores."""
    constants = {**weights("wq", "wk", "wv"), "scale": np.float32(scale), "axis": np.array([1])}
    both = [model(SCORES + way, **constants) for way in (BY_THE_LARGEST, BY_THE_SUM)]
    found = diff(*(reversed(both) if is_reverse else both), seed=seed)
    assert found.verdict == "agree", str(found)


WRONG_WAYS = {
    "p": ("p = Exp(d)", "p = Sigmoid(d)"),
    "v": ("v = MatMul(x, wv)", "v = MatMul(x, wo)"),
    "q": ("q = MatMul(x, wq)", "r = MatMul(x, wq)\n        q = Tanh(r)"),
    "y": ("y = Add(mixed, x)", "y = Sub(mixed, x)"),
}


@pytest.mark.parametrize("scale", [0.25, 2])
@pytest.mark.parametrize("fault", WRONG_WAYS)
def test_a_fault_beside_another_way_to_a_softmax_is_named_first(fault: str, scale: float) -> None:
    constants = {**weights("wq", "wk", "wv", "wo"), "scale": np.float32(scale), "axis": np.array([1])}
    wrong = (SCORES + BY_THE_SUM).replace(*WRONG_WAYS[fault])
    found = diff(model(SCORES + BY_THE_LARGEST, **constants), model(wrong, **constants))
    assert found.verdict == "diverge"
    assert found.first_divergence is not None
    assert found.first_divergence.row.pair.second == fault, str(found)


HIDDEN = np.triu(np.ones((6, 6), dtype=np.float32), 1)
HIDDEN[:, 0] = 1


@pytest.mark.parametrize("infinity", [-3.4e38, -1e9])
def test_beside_a_row_that_a_mask_hides_whole_a_fault_is_seen(infinity: float) -> None:
    """What a softmax makes of such a row, as of padding on the left, one rounding decides."""
    text = (
        "agraph (float[6, 6] x, float[6, 8] v) => (float[6, 8] y) { s = Add(x, m)\n p = Softmax(s)\n y = MatMul(p, v) }"
    )
    mask, other = (HIDDEN * np.float32(each) for each in (infinity, -2e9))
    first = model(text, m=mask)
    assert diff(first, model(text, m=other)).verdict == "agree"
    wrong = model(text.replace("Softmax", "Softmax<axis = 0>"), m=mask)
    for one, second in ((first, wrong), (wrong, first)):
        found = diff(one, second)
        assert [cause.row.pair.second for cause in found.findings.causes] == ["p"], str(found)


def test_a_large_column_is_no_mask_where_nothing_takes_exponentials() -> None:
    """What is taken from it before or behind a product errs by its roundings."""
    generator = np.random.default_rng(0)
    w = generator.standard_normal((8, 8)).astype(np.float32)
    mean = np.zeros(8, dtype=np.float32)
    mean[3] = -3000
    x = torch.from_numpy(0.3 * generator.standard_normal((16, 8)).astype(np.float32) + mean)
    steps = ("p = MatMul(x, w)\n y = Add(p, c)", "d = Sub(x, c)\n y = MatMul(d, w)")
    texts = (f"agraph (float[16, 8] x) => (float[16, 8] y) {{ {each} }}" for each in steps)
    both = [model(text, w=w, c=c) for text, c in zip(texts, (-mean @ w, mean), strict=True)]
    for first, second in (both, reversed(both)):
        assert diff(first, second, {"x": x}).verdict == "agree"


@pytest.mark.parametrize("is_wrong", [False, True])
def test_a_mask_may_be_infinite_or_the_least_number(*, is_wrong: bool) -> None:
    """Beside a fault, too: there it is no cause."""
    text = """agraph (float[4, 5] x) => (float[4, 5] y) {
        s = MatMul(x, w) t = Add(s, b) hidden = Where(mask, t, least) p = Softmax(hidden) y = MatMul(p, w) }"""
    generator = np.random.default_rng(0)
    w, b = (generator.standard_normal(shape).astype(np.float32) for shape in ((5, 5), 5))
    mask = np.tril(np.ones((4, 5), bool))
    first = model(text, w=w, b=b, mask=mask, least=np.float32(-np.inf))
    other = model(text, w=w, b=b * np.float32(1 + 0.1 * is_wrong), mask=mask, least=np.finfo(np.float32).min)
    for one, two in ((first, other), (other, first)):
        found = diff(one, two)
        assert [cause.row.pair.first for cause in found.findings.causes] == ["b"] * is_wrong, str(found)
