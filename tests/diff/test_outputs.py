"""Which output stands for which, by name, else by place."""

from __future__ import annotations

import numpy as np
import pytest
from graph_text import model
from onnx import TensorProto

from dort_compare.onnx_diff import diff


def test_an_output_of_another_shape_diverges_and_one_of_another_dtype_is_told() -> None:
    first = model("agraph (float[4, 8] x) => (float[4, 8] y) { y = Tanh(x) }")
    flat = "agraph (float[4, 8] x) => (float[32] y) { t = Tanh(x)\n y = Reshape(t, s) }"
    found = diff(first, model(flat, s=np.array([32], dtype=np.int64)))
    assert (found.verdict, found.findings.reason) == ("diverge", "output 'y' is float32 32 where 'y' is float32 4x8")
    half = diff(first, model("agraph (float[4, 8] x) => (float16[4, 8] y) { t = Tanh(x)\n y = Cast<to = 10>(t) }"))
    assert half.verdict == "agree"
    assert "output 'y' is float16 4x8 where 'y' is float32 4x8" in half.findings.notes


TWO = "agraph (float[4, 8] x) => (float[4, 8] {}, float[4, 8] {}) {{ {} = Exp(x)\n {} = Tanh(x) }}"


def test_outputs_that_are_swapped_under_the_same_names_diverge() -> None:
    found = diff(model(TWO.format("p", "q", "p", "q")), model(TWO.format("p", "q", "q", "p")))
    assert found.verdict == "diverge"
    assert [cause.row.pair.second for cause in found.findings.causes] == ["q", "p"]
    assert found.findings.causes[1].reason.startswith(
        "output 'p' of second holds 'q' of first; max |first - second| = "
    )
    assert found.findings.causes[1].reason.endswith("Tanh instead of Exp")


def test_outputs_that_share_no_names_stand_for_one_another_by_place() -> None:
    first = model(TWO.format("p", "q", "p", "q"))
    assert diff(first, model(TWO.format("a", "b", "a", "b"))).verdict == "agree"
    swapped = diff(first, model(TWO.format("a", "b", "b", "a")))
    assert (swapped.verdict, len(swapped.findings.causes)) == ("diverge", 2)
    assert "output 'a' of second holds 'q' of first" in str(swapped)


def test_the_same_outputs_in_another_order_are_told() -> None:
    found = diff(model(TWO.format("p", "q", "p", "q")), model(TWO.format("q", "p", "p", "q")))
    assert found.verdict == "agree"
    assert "second returns q, p in this order, first p, q" in found.findings.notes


def test_an_output_that_holds_another_value_of_the_first_diverges() -> None:
    first = model("agraph (float[4, 8] x) => (float[4, 8] y) { h = Neg(x)\n y = Relu(h) }")
    unread = diff(first, model("agraph (float[4, 8] x) => (float[4, 8] y) { y = Neg(x)\n z = Relu(y) }"))
    assert unread.verdict == "diverge"
    assert unread.findings.reason.startswith("output 'y' of second holds 'h' of first; max |first - second| = ")
    assert unread.findings.reason.endswith("Neg instead of Relu")


@pytest.mark.parametrize("returned", ["p = Identity(x)", "p = Exp(x)"])
def test_a_value_that_is_returned_twice_is_no_swap(returned: str) -> None:
    both = "agraph (float[4, 8] x) => (float[4, 8] p, float[4, 8] q) {{ q = {}\n p = {} }}"
    rest = returned.removeprefix("p = ")
    twice, once = model(both.format(rest, rest)), model(both.format(rest, "Identity(q)"))
    for first, second in ((twice, once), (once, twice), (twice, twice), (once, once)):
        found = diff(first, second)
        assert found.verdict == "agree", str(found)


@pytest.mark.parametrize(("other", "verdict"), [("Neg", "agree"), ("Exp", "diverge")])
def test_one_value_may_be_two_outputs_under_one_name(other: str, verdict: str) -> None:
    apart = model(f"agraph (float[4, 8] x) => (float[4, 8] p, float[4, 8] q) {{ p = Neg(x)\n q = {other}(x) }}")
    merged = model("agraph (float[4, 8] x) => (float[4, 8] p, float[4, 8] p) { p = Neg(x) }")
    for first, second in ((apart, merged), (merged, apart)):
        found = diff(first, second)
        assert found.verdict == verdict, str(found)


def test_an_output_that_is_gone_diverges_and_one_in_addition_is_told() -> None:
    more = model("agraph (float[4, 8] x) => (float[4, 8] y, float[4, 8] h) { h = Exp(x)\n y = Neg(h) }")
    less = model("agraph (float[4, 8] x) => (float[4, 8] y) { h = Exp(x)\n y = Neg(h) }")
    found = diff(more, less)
    assert (found.verdict, found.findings.reason) == ("diverge", "second does not return 'h', an output of first")
    found = diff(less, more)
    assert found.verdict == "agree"
    assert "second returns 'h' in addition" in found.findings.notes
    other = model("agraph (float[4, 8] x) => (float[4, 8] a, float[4, 8] b) { a = Exp(x)\n b = Neg(a) }")
    assert diff(less, other).verdict == "agree"
    assert diff(other, less).findings.reason == "second does not return 'a', an output of first"


def test_an_output_of_another_kind_or_size_diverges_though_its_content_is_returned_elsewhere() -> None:
    text = "agraph (float[4, 8] x) => ({}) {{ {} = Exp(x)\n {} = ReduceSum<keepdims = 0>({}, axes) }}"
    first = model(text.format("float[4, 8] p, float[4] q", "p", "q", "p"), axes=np.array([1]))
    swapped = model(text.format("float[4] p, float[4, 8] q", "q", "p", "q"), axes=np.array([1]))
    found = diff(first, swapped)
    assert (found.verdict, found.findings.reason) == ("diverge", "output 'p' is float32 4 where 'p' is float32 4x8")


@pytest.mark.parametrize("fill", [np.nan, np.inf])
def test_outputs_without_a_number_are_no_agreement(fill: float) -> None:
    graph = model("agraph (float[4] x) => (float[4] y) { y = Mul(x, c) }", c=np.float32(fill))
    found = diff(graph, graph)
    assert found.verdict == "diverge"
    assert found.findings.reason.startswith("nothing was compared: first returns no finite number")


def test_an_output_may_be_an_input() -> None:
    through, same = "agraph (float[2] x) => (float[2] x) {}", "agraph (float[2] x) => (float[2] y) { y = Identity(x) }"
    for first, second in ((same, through), (through, same)):
        found = diff(model(first), model(second))
        assert found.verdict == "agree", str(found)
        assert (
            diff(model(first.replace("Identity", "Exp")), model(second.replace("Identity", "Exp"))).verdict == "diverge"
        )
    assert diff(model(through), model(through)).findings.reason.startswith("nothing was compared")


@pytest.mark.parametrize("other", [TensorProto.INT32, TensorProto.INT64])
def test_integers_of_any_size_are_one_output(other: int) -> None:
    text = "agraph (float[4, 8] x) => (y) {{ r = Round(x)\n y = Cast<to = {}>(r) }}"
    both = [model(text.format(kind)) for kind in (TensorProto.INT8, other)]
    assert diff(*both).verdict == diff(*reversed(both)).verdict == "agree"
