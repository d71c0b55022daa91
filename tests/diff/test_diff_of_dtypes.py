"""Two ONNX models that take one input in two dtypes, as a conversion to half precision or to narrow integers leaves."""

from __future__ import annotations

from typing import Literal

import numpy as np
import onnx
import pytest
import torch
from graph_text import model

from dort_compare.errors import UsageError
from dort_compare.onnx_diff import diff
from dort_compare.report.diff import Diff


def gathering(element: str, index: str = "int64", *, operator: str = "Tanh", names: str = "x, i") -> onnx.ModelProto:
    x, i = names.split(", ")
    return model(f"""
    agraph ({element}[2, 6] {x}, {index}[3] {i}) => (float[3, 6] y) {{
        t = {operator}({x})
        g = Gather<axis = 0>(t, {i})
        y = Cast<to = 1>(g)
    }}""")


def statuses_of_inputs(found: Diff) -> dict[str, str]:
    return {row.pair.second: row.status for row in found.rows if row.pair.how == "input"}


TWO_DTYPES = [
    ("float", "float16", "int64", "int64"),
    ("float", "double", "int64", "int64"),
    ("float", "float", "int64", "int32"),
    ("double", "float16", "int64", "int32"),
]


@pytest.mark.parametrize("engine", ["ort", "reference"])
@pytest.mark.parametrize("is_reverse", [False, True])
@pytest.mark.parametrize(("one", "other", "index", "other_index"), TWO_DTYPES)
def test_an_input_in_two_dtypes_is_one_input(
    one: str, other: str, index: str, other_index: str, is_reverse: bool, engine: Literal["ort", "reference"]
) -> None:
    both = [gathering(one, index), gathering(other, other_index)]
    found = diff(*(reversed(both) if is_reverse else both), engine=engine)
    assert found.verdict == "agree", str(found)
    assert statuses_of_inputs(found) == {"x": "equal", "i": "equal"}


@pytest.mark.parametrize("is_reverse", [False, True])
@pytest.mark.parametrize(("one", "other", "index", "other_index"), TWO_DTYPES)
def test_a_fault_behind_an_input_in_two_dtypes_is_the_one_cause(
    one: str, other: str, index: str, other_index: str, is_reverse: bool
) -> None:
    right, wrong = gathering(one, index), gathering(other, other_index, operator="Sigmoid")
    if is_reverse:
        right, wrong = gathering(other, other_index), gathering(one, index, operator="Sigmoid")
    (cause,) = diff(right, wrong).findings.causes
    assert cause.row.pair.second == "t", cause


def test_inputs_in_two_dtypes_that_share_no_names_are_paired_in_order() -> None:
    found = diff(gathering("float"), gathering("float16", "int32", names="input, ids"))
    assert found.verdict == "agree", str(found)
    assert statuses_of_inputs(found) == {"input": "equal", "ids": "equal"}


def test_inputs_of_one_name_are_paired_before_those_of_one_dtype() -> None:
    text = (
        "agraph ({}[2, 6] a, {}[2, 6] {}) => (float[2, 6] y) {{ c = Cast<to = 1>(a)\n d = Sub(c, {})\n y = Tanh(d) }}"
    )
    first = model(text.format("float", "float", "b", "b"))
    found = diff(first, model(text.format("float16", "float", "other", "other")))
    assert found.verdict == "agree", str(found)


def test_channels_last_in_two_dtypes_are_one_input() -> None:
    first = model("agraph (float[1, 3, 4, 5] x) => (float[1, 3, 4, 5] y) { y = Tanh(x) }")
    second = model("""
    agraph (float16[1, 4, 5, 3] image) => (float[1, 3, 4, 5] y) {
        t = Transpose<perm = [0, 3, 1, 2]>(image)
        h = Tanh(t)
        y = Cast<to = 1>(h)
    }""")
    found = diff(first, second)
    assert found.verdict == "agree", str(found)
    assert statuses_of_inputs(found) == {"image": "equal"}


def test_of_inputs_in_another_dtype_the_one_in_the_same_order_is_taken_first() -> None:
    first = model("agraph (float[1, 3, 4, 5] x) => (float[1, 3, 4, 5] y) { y = Tanh(x) }")
    second = model("""
    agraph (float16[1, 4, 5, 3] p, float16[1, 3, 4, 5] q) => (float[1, 3, 4, 5] y) {
        h = Tanh(q)
        y = Cast<to = 1>(h)
    }""")
    assert statuses_of_inputs(diff(first, second)) == {"q": "equal"}


@pytest.mark.parametrize(
    ("one", "other"), [("float", "int64"), ("bool", "int64"), ("bool", "float16"), ("int8", "uint8")]
)
def test_inputs_of_two_kinds_are_two_inputs(one: str, other: str) -> None:
    text = "agraph ({}[4, 4] x) => (float[4, 4] y) {{ c = Cast<to = 1>(x)\n y = Tanh(c) }}"
    assert statuses_of_inputs(diff(model(text.format(one)), model(text.format(other)))) == {}


def test_random_numbers_for_two_half_precisions_are_held_by_both() -> None:
    text = "agraph ({}[64, 64] x) => (float[64, 64] y) {{ c = Cast<to = 1>(x)\n y = Tanh(c) }}"
    found = diff(model(text.format("float16")), model(text.format("bfloat16")))
    assert found.verdict == "agree", str(found)
    assert statuses_of_inputs(found) == {"x": "equal"}


def test_random_indices_fit_the_narrower_dtype() -> None:
    table = np.random.default_rng(0).standard_normal((1000, 8)).astype(np.float32)
    text = "agraph ({}[50] i) => (float[50, 8] y) {{ j = Cast<to = 7>(i)\n y = Gather(table, j) }}"
    found = diff(model(text.format("int64"), table=table), model(text.format("uint8"), table=table))
    assert found.verdict == "agree", str(found)
    assert statuses_of_inputs(found) == {"i": "equal"}


GIVEN = {"x": torch.randn(2, 6, generator=torch.Generator().manual_seed(0)), "i": torch.tensor([0, 1, 1])}


@pytest.mark.parametrize("is_reverse", [False, True])
def test_a_given_tensor_is_rounded_to_what_both_models_hold(is_reverse: bool) -> None:
    both = [gathering("float"), gathering("float16", "int32", names="half, ids")]
    found = diff(*(reversed(both) if is_reverse else both), inputs=GIVEN)
    assert found.verdict == "agree", str(found)
    assert set(statuses_of_inputs(found).values()) == {"equal"}
    taking = "first" if is_reverse else "second"
    assert found.inputs == ("2 given", "1 of them rounded to float16 for both", f"1 of them cast to int32 for {taking}")
    assert "inputs: 2 given, 1 of them rounded to float16 for both" in found.text()


def test_a_given_tensor_that_both_models_hold_is_cast() -> None:
    found = diff(gathering("float"), gathering("double", "int32"), GIVEN | {"i": GIVEN["i"].int()})
    assert found.verdict == "agree", str(found)
    assert found.inputs == ("2 given", "1 of them cast to float64 for second", "1 of them cast to int64 for first")


def test_tensors_given_by_the_names_of_both_models_stay_as_they_are() -> None:
    given = {**GIVEN, "half": GIVEN["x"].half(), "ids": GIVEN["i"].int()}
    found = diff(gathering("float"), gathering("float16", "int32", names="half, ids"), given)
    assert found.verdict == "agree", str(found)
    assert found.inputs == ("4 given",)


def test_a_given_mask_still_masks_in_half_precision() -> None:
    text = """
    agraph ({0}[2, 6] x, {0}[2, 6] m) => (float[2, 6] y) {{
        s = Add(x, m)
        p = Softmax(s)
        y = Cast<to = 1>(p)
    }}"""
    mask = torch.tensor([[0, 0, 0, 0, 1, 1], [1, 1, 1, 1, 1, 1]]) * torch.finfo(torch.float32).min
    found = diff(model(text.format("float")), model(text.format("float16")), {"x": GIVEN["x"], "m": mask})
    assert found.verdict == "agree", str(found)
    assert statuses_of_inputs(found) == {"x": "equal", "m": "equal"}


def test_a_given_integer_that_only_one_model_holds_is_refused() -> None:
    with pytest.raises(UsageError, match=r"second: input 'i' takes int32, and what is given holds 4294967297$"):
        diff(gathering("float"), gathering("float", "int32"), {**GIVEN, "i": torch.tensor([0, 1, 2**32 + 1])})


def test_a_given_tensor_of_a_dtype_that_neither_model_takes_is_refused() -> None:
    with pytest.raises(UsageError, match="first: input 'x' takes float32 2x6, and float64 2x6 is given"):
        diff(gathering("float"), gathering("float16"), {**GIVEN, "x": GIVEN["x"].double()})


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16"])
def test_bytes_are_drawn_from_all_that_there_are(dtype: str) -> None:
    text = f"agraph ({dtype}[4, 16] x) => (float[4, 16] y) {{ f = Cast<to = 1>(x) y = Abs(f) }}"
    assert diff(model(text), model(text.replace("Abs", "Mul").replace("(f)", "(f, f)"))).verdict == "diverge"
    assert diff(model(text), model(text)).verdict == "agree"


def test_bytes_that_become_places_are_few() -> None:
    text = """agraph (int8[3] i, float[2, 3] x) => (float[1, 3] y) {
        axes = Constant<value = int64[1] {0}>()
        w = Cast<to = 7>(i) p = Unsqueeze(w, axes) y = GatherElements(x, p)
    }"""
    assert diff(model(text), model(text)).verdict == "agree"


def test_a_needless_cast_of_what_is_made_of_weights_in_half_precision_is_named() -> None:
    weight = np.random.default_rng(0).standard_normal((6, 6)).astype(np.float16)
    first = model("agraph (float[4, 6] x) => (float[4, 6] z) { y = MatMul(x, w) z = Tanh(y) }", w=np.float32(weight))
    text = "agraph (float[4, 6] x) => (float[4, 6] z) {{ w = Cast<to = 1>(h) y = MatMul(x, w) {} }}"
    assert diff(first, model(text.format("z = Tanh(y)"), h=weight)).verdict == "agree"
    found = diff(first, model(text.format("k = Cast<to = 10>(y) c = Cast<to = 1>(k) z = Tanh(c)"), h=weight))
    assert found.first_divergence is not None
    assert found.first_divergence.row.pair.second == "c", str(found)


IN_FLOAT32 = """
        a = Cast<to = 1>(s)
        b = Cast<to = 1>(k)
        w = Max(a, b)
        u = Cast<to = 10>(w)
        c = Cast<to = 1>(u)
        d = Cast<to = 1>(k)
        t = Min(c, d)
        v = Cast<to = 10>(t)
        e = Exp(v)
"""


@pytest.mark.parametrize("element", [10, 16])
@pytest.mark.parametrize("seed", range(4))
def test_a_needless_cast_among_other_steps_to_one_value_is_named(seed: int, element: int) -> None:
    """A rounding of what is cast may tip it to the next number in half precision, which is as far as the cast goes."""
    w = np.random.default_rng(seed).standard_normal((16, 16)).astype(np.float32)
    text = "agraph (float[12, 16] x) => (float[12, 16] y) { h = MatMul(x, w) %s y = Mul(s, h) }"
    steps = "n = Neg(h) c = Cast<to = %d>(n) b = Cast<to = 1>(c) e = Exp(b) p = Add(one, e) s = Reciprocal(p)"
    right, one = model(text % "s = Sigmoid(h)", w=w), np.float32(1)
    assert diff(right, model(text % (steps % 1), w=w, one=one)).verdict == "agree"
    (cause,) = diff(right, model(text % (steps % element), w=w, one=one)).findings.causes
    assert cause.row.pair.second == "s"


def test_casts_between_operators_that_a_converter_leaves_in_float32_are_noise() -> None:
    """As ONNX Runtime's float16 converter leaves Max and Min."""
    plain = model("""agraph (float[3, 4] x, float[3, 4] y) => (float[3, 4] z) {
        s = Add(x, y) u = Max(s, y) v = Min(u, y) z = Exp(v)
    }""")
    half = model(f"""agraph (float16[3, 4] x, float16[3, 4] y) => (float16[3, 4] z) {{
        k = Identity(y) s = Add(x, k) {IN_FLOAT32} z = Identity(e)
    }}""")
    within = model(f"""agraph (float[3, 4] x, float[3, 4] y) => (float[3, 4] z) {{
        h = Cast<to = 10>(x) k = Cast<to = 10>(y) s = Add(h, k) {IN_FLOAT32} z = Cast<to = 1>(e)
    }}""")
    for one, other in ((plain, half), (half, plain), (plain, within), (within, plain)):
        found = diff(one, other)
        assert found.verdict == "agree", str(found)
