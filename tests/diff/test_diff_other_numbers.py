"""Two ONNX models with constants that differ where nothing paired departs: what is told of them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from graph_text import model
from pairs_of_models import FOLDED, ROLLED, SHARED, UNFOLDED, counted_from_the_end, folded, normalized

from dort_compare.onnx_diff import diff
from dort_compare.report.diff import Diff

LOOKED_UP = "agraph (int64[2, 3] ids) => (float[2, 3, 4] y) { g = Gather(table, ids)\n y = MatMul(g, w) }"
GENERATOR = np.random.default_rng(0)
TABLE = GENERATOR.standard_normal((1000, 8)).astype(np.float32)
WEIGHT = GENERATOR.standard_normal((8, 4)).astype(np.float32)


def told(found: Diff) -> list[str]:
    return [note for note in found.findings.notes if "other numbers" in note]


def reasons(found: Diff, which: str) -> dict[str, str]:
    return {value.name: value.reason for value in found.unpaired if value.model == which}


@pytest.mark.parametrize("number", [np.nan, 7.5])
def test_a_row_of_a_table_that_nothing_looks_up_is_told(number: float) -> None:
    other = TABLE.copy()
    other[999] = number
    found = diff(model(LOOKED_UP, table=TABLE, w=WEIGHT), model(LOOKED_UP.replace("table", "t"), t=other, w=WEIGHT))
    assert found.verdict == "agree"
    (note,) = told(found)
    assert note.startswith("constant 't' of second holds other numbers than 'table' of first (")
    assert note.endswith("), although 'g', which is computed of it, agrees on these inputs")
    assert ("NaN" in note) == np.isnan(number), note
    assert note in str(found)
    assert note in found.as_json()["notes"]
    assert reasons(found, "first") == {"table": "a constant of other numbers than 't', although 'g' agrees"}
    assert reasons(found, "second") == {"t": "a constant of other numbers than 'table', although 'g' agrees"}
    assert "unpaired in the second: 1 constants of other numbers\n" in str(found)


RECTIFIED = """
    agraph (float[4, 8] x) => (float[4, 4] y) {
        m = MatMul(x, w)
        s = Add(m, b)
        r = Relu(s)
        y = Mul(r, r)
    }"""


@pytest.mark.parametrize("text", [RECTIFIED, RECTIFIED.replace("Add(m, b)", "Add(b, m)")], ids=["same", "commuted"])
@pytest.mark.parametrize("name", ["w", "b"])
def test_a_constant_behind_a_rectifier_that_is_never_open_is_told(name: str, text: str) -> None:
    right = {"w": WEIGHT, "b": np.array([0.5, -100, 0.25, 1], np.float32)}
    wrong = {each: value.copy() for each, value in right.items()}
    wrong[name][..., 1] = -90 if name == "b" else 2 * WEIGHT[:, 1]
    found = diff(model(RECTIFIED, **right), model(text, **wrong))
    assert found.verdict == "agree", str(found)
    (note,) = told(found)
    assert note.startswith(f"constant {name!r} of second holds other numbers than {name!r} of first (max |first")
    assert "'r', which is computed of it" in note
    steps = {"w": ["m", "s"], "b": ["s"]}[name]
    for which in ("first", "second"):
        assert reasons(found, which) == {
            name: f"a constant of other numbers than {name!r}, although 'r' agrees",
            **{step: f"a step on other numbers than {step!r}, although 'r' agrees" for step in steps},
        }


def test_a_departure_that_is_lost_in_later_roundings_is_told() -> None:
    text = "agraph (float[4, 8] x) => (float[4, 8] y) { t = Tanh(x)\n h = Mul(t, k)\n y = Add(h, hundred) }"
    k, hundred = np.linspace(0.5, 1, 8).astype(np.float32), np.float32(100)
    found = diff(model(text, k=k, hundred=hundred), model(text, k=k + np.float32(2e-6), hundred=hundred))
    assert found.verdict == "agree"
    assert len(told(found)) == 1
    assert "second: values that such constants change, although what follows agrees: 1: 'h'" in str(found)
    assert reasons(found, "second")["h"] == "a step on other numbers than 'h', although 'y' agrees"


def test_of_many_constants_some_are_told_and_the_others_counted() -> None:
    layers = "\n".join(f"s{i} = Add(r{i}, b{i})\n r{i + 1} = Relu(s{i})" for i in range(7))
    text = f"agraph (float[4, 4] x) => (float[4, 4] r7) {{ r0 = Exp(x)\n {layers} }}"
    right = {f"b{i}": np.array([i + 0.5, -1e4, 0.25, 1], np.float32) for i in range(7)}
    wrong = {name: value * np.array([1, 1.5, 1, 1], np.float32) for name, value in right.items()}
    found = diff(model(text, **right), model(text, **wrong))
    notes = told(found)
    assert len(notes) == 6
    assert notes[-1] == "2 more constants of second hold other numbers than their counterparts; --all shows them"


POOLED = """
    agraph (float[2, 8, 6, 6] x) => (float[2, 8, 3, 3] y) {
        n = Neg(x)
        e = Exp(n)
        a = Add(e, one)
        s = Div(x, a)
        t = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(s)
        i = IsNaN(s)
        f = Cast<to = 1>(i)
        p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(f)
        z = Greater(p, zero)
        y = Where(z, nan, t)
    }"""
LAST = """
    agraph (float[2, 8, 6, 6] x) => (float[2, 8, 3, 3] y) {
        last = Transpose<perm = [0, 2, 3, 1]>(x)
        n = Neg(last)
        e = Sinh(n)
        a = Add(e, one)
        s = Div(last, a)
        first = Transpose<perm = [0, 3, 1, 2]>(s)
        t = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(first)
        i = IsNaN(s)
        f = Cast<to = 1>(i)
        g = Transpose<perm = [0, 3, 1, 2]>(f)
        p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(g)
        z = Greater(p, zero)
        y = Where(z, nan, t)
    }"""


def test_what_a_fault_changes_is_laid_at_no_constant() -> None:
    """That none of it is NaN agrees."""
    constants = {"one": np.float32(1), "zero": np.float32(0), "nan": np.float32(np.nan)}
    found = diff(model(POOLED, **constants), model(LAST, **constants))
    assert found.first_divergence is not None
    assert found.first_divergence.row.pair.second == "e"
    assert any(row.pair.second == "i" and row.status == "equal" for row in found.rows)
    assert "s" in reasons(found, "second")
    assert "other numbers" not in str(found)
    assert "such constants" not in str(found)


def agreeing() -> list[tuple[onnx.ModelProto, onnx.ModelProto]]:
    return [
        (model(FOLDED, **folded()), model(UNFOLDED, **normalized())),
        (counted_from_the_end(), model(ROLLED, **SHARED, end=np.array([8]), six=np.array([6]))),
    ]


@pytest.mark.parametrize("both", agreeing(), ids=["folded", "ends"])
def test_constants_of_other_steps_and_words_for_the_same_sizes_are_not_told(
    both: tuple[onnx.ModelProto, onnx.ModelProto],
) -> None:
    for first, second in (both, both[::-1]):
        found = diff(first, second)
        assert found.verdict == "agree"
        assert not told(found)


BOUNDED = """
    agraph (float[4, 8] x) => (float[4, 4] y) {
        m = MatMul(x, w)
        s = Add(m, b)
        t = LeakyRelu<alpha = 0.1>(s)
        y = Max(t, fifty)
    }"""
LEAKY = "t = LeakyRelu<alpha = 0.1>(s)"


def bounded(text: str, b: np.ndarray) -> onnx.ModelProto:
    """Nothing of what ``b`` changes is left in y."""
    return model(text, w=WEIGHT, b=b, fifty=np.float32(50), none=np.zeros(4, np.float32), low=np.float32(-50))


ONES = np.ones(4, np.float32)
SAME_WAYS = {
    "alike": (BOUNDED, BOUNDED),
    "left out operand": (BOUNDED.replace(LEAKY, "t = Clip(s, , low)"),) * 2,
}
OTHER_WAYS = {
    "attribute": (BOUNDED, BOUNDED.replace("0.1", "0.2")),
    "operation": (BOUNDED.replace(LEAKY, "t = Sin(s)"), BOUNDED.replace(LEAKY, "t = Cos(s)")),
    "result": (
        BOUNDED.replace(LEAKY, "t, u = Split<num_outputs = 2, axis = 0>(s)").replace("[4, 4]", "[2, 4]"),
        BOUNDED.replace(LEAKY, "u, t = Split<num_outputs = 2, axis = 0>(s)").replace("[4, 4]", "[2, 4]"),
    ),
    "operands": (BOUNDED, BOUNDED.replace("Max(t, fifty)", "Max(t, fifty, none)")),
    "a step for a constant": (BOUNDED, BOUNDED.replace("s = Add(m, b)", "c = Add(b, b)\n s = Add(m, c)")),
    "draws": (BOUNDED.replace(LEAKY, "t = RandomNormalLike(m)"),) * 2,
    "a result that departs": (BOUNDED.replace("Max(t, fifty)", "Min(t, fifty)"),) * 2,
    "a step that departs": (BOUNDED.replace("(float[4, 4] y)", "(float[4, 4] y, float[4, 4] s)"),) * 2,
}


@pytest.mark.parametrize("way", SAME_WAYS)
def test_a_constant_behind_a_bound_is_told(way: str) -> None:
    one, other = SAME_WAYS[way]
    (note,) = told(diff(bounded(one, ONES), bounded(other, 2 * ONES)))
    assert note.startswith("constant 'b' of second holds other numbers than 'b' of first")


QUANTIZED = """
    agraph (float[4, 8] x) => (float[4, 4] y) {
        q = QuantizeLinear(x, scale, zero)
        d = DequantizeLinear(q, scale, zero)
        y = MatMul(d, w)
    }"""


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_a_zero_point_that_shows_at_the_ends_of_the_range_alone_is_told(dtype: type[np.generic]) -> None:
    first, second = (model(QUANTIZED, w=WEIGHT, scale=np.float32(0.1), zero=dtype(zero)) for zero in (60, 61))
    found = diff(first, second)
    assert found.verdict == "agree"
    (note,) = told(found)
    assert note.startswith("constant 'zero' of second holds other numbers than 'zero' of first (max |first -")
    assert diff(first, second, {"x": torch.linspace(-30, 30, 32).reshape(4, 8)}).verdict == "diverge"


@pytest.mark.parametrize("way", OTHER_WAYS)
def test_ways_that_differ_in_more_than_numbers_of_constants_tell_nothing(way: str) -> None:
    one, other = OTHER_WAYS[way]
    assert not told(diff(bounded(one, ONES), bounded(other, 2 * ONES)))


@pytest.mark.parametrize("b", [2 * ONES[:1], 2 * ONES.astype(np.float64)], ids=["shape", "dtype"])
def test_constants_of_two_types_are_no_counterparts(b: np.ndarray) -> None:
    text = BOUNDED.replace("s = Add(m, b)", "c = Cast<to = 1>(b)\n s = Add(m, c)")
    assert not told(diff(bounded(text, ONES), bounded(text, b)))
