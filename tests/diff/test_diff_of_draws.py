"""Two ONNX models that draw random numbers."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from graph_text import model
from pairs_of_models import partners

from dort_compare.onnx_diff import diff

PLAIN = "agraph (float[4, 8] x) => (float[4, 8] y) { h = Tanh(x)\n y = Mul(h, k) }"
TRAINS = "agraph (float[4, 8] x) => (float[4, 8] y) { t = Tanh(x)\n h = Dropout(t, ratio, trains)\n y = Mul(h, k) }"
NOISY = (
    "agraph (float[4, 8] x) => (float[4, 8] y)"
    " { t = Tanh(x)\n r = RandomNormalLike(t)\n h = Add(t, r)\n y = Mul(h, k) }"
)


def drawing(text: str, trains: bool = True) -> onnx.ModelProto:
    return model(text, k=np.float32(2), ratio=np.float32(0.5), trains=np.bool_(trains))


@pytest.mark.parametrize("text", [TRAINS, NOISY])
def test_what_one_of_the_models_alone_draws_departs(text: str) -> None:
    for first, second, which in ((PLAIN, text, "second"), (text, PLAIN, "first")):
        found = diff(drawing(first), drawing(second))
        assert found.verdict == "diverge"
        assert f"random numbers that the {which} alone draws" in found.findings.reason, str(found)


def test_what_both_models_draw_is_no_departure_and_is_told() -> None:
    found = diff(drawing(TRAINS), drawing(TRAINS))
    assert found.verdict == "agree"
    assert {row.status for row in found.rows if row.pair.second == "h"} == {"random"}
    assert any("random numbers that both models draw" in note for note in found.findings.notes), str(found)


def test_a_dropout_that_does_not_train_draws_nothing() -> None:
    for first, second in ((PLAIN, TRAINS), (TRAINS, PLAIN), (TRAINS, TRAINS)):
        found = diff(drawing(first, trains=False), drawing(second, trains=False))
        assert found.verdict == "agree"
        assert {row.status for row in found.rows} == {"equal"}, str(found)


CONSTANTS = {"k": np.float32(2), "half": np.float32(0.5), "tenth": np.float32(0.1), "trains": np.bool_(True)}


def drawn_by(*steps: str, result: str = "Mul(h, k)") -> onnx.ModelProto:
    lines = "\n".join(["t = Tanh(x)", *steps, f"y = {result}"])
    return model(f"agraph (float[4, 8] x) => (float[4, 8] y) {{ {lines} }}", **CONSTANTS)


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        ("Dropout(t, half, trains)", "Dropout(t, tenth, trains)", "Dropout (ratio 0.1) instead of Dropout (ratio 0.5)"),
        ("Dropout(t, , trains)", "Dropout(t, tenth, trains)", "Dropout (ratio 0.1) instead of Dropout (ratio 0.5)"),
        (
            "RandomNormalLike(t)",
            "RandomNormalLike<scale = 1.5>(t)",
            "RandomNormal (mean 0, scale 1.5) instead of RandomNormal (mean 0, scale 1)",
        ),
        (
            "RandomNormal<shape = [4, 8]>()",
            "RandomUniformLike(t)",
            "RandomUniform (low 0, high 1) instead of RandomNormal (mean 0, scale 1)",
        ),
    ],
)
def test_what_is_drawn_from_another_distribution_departs(one: str, other: str, words: str) -> None:
    for first, second, expected in (
        (one, other, words),
        (other, one, " instead of ".join(reversed(words.split(" instead of ")))),
    ):
        found = diff(drawn_by(f"h = {first}"), drawn_by(f"h = {second}"))
        assert [cause.row.pair.second for cause in found.findings.causes] == ["h"]
        assert found.findings.reason.startswith(f"drawn by {expected}")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Dropout(t, half, trains)", "Dropout(t, , trains)"),
        ("RandomNormal<shape = [4, 8]>()", "RandomNormalLike<mean = 0.0, seed = 3.0>(t)"),
        ("RandomUniformLike<high = 2.0>(t)", "RandomUniform<low = 0.0, high = 2.0, shape = [4, 8]>()"),
        ("Bernoulli(t)", "Bernoulli<seed = 1.0>(t)"),
    ],
)
def test_what_is_drawn_from_one_distribution_agrees(one: str, other: str) -> None:
    for first, second in ((one, other), (other, one)):
        positive = ["p = Abs(t)"] if "Bernoulli" in one else []
        models = [drawn_by(*positive, f"h = {each}".replace("Bernoulli(t", "Bernoulli(p")) for each in (first, second)]
        assert diff(*models).verdict == "agree"


def test_of_several_draws_that_with_its_distribution_is_the_partner() -> None:
    one, other = "a = Dropout(t, half, trains)", "b = Dropout(t, tenth, trains)"
    first, second = drawn_by(one, other, result="Sub(a, b)"), drawn_by(other, one, result="Sub(a, b)")
    found = diff(first, second)
    assert found.verdict == "agree", str(found)
    assert {"a": "a", "b": "b"}.items() <= partners(found).items()


def test_what_is_drawn_in_unlike_steps_is_not_judged() -> None:
    whole = drawn_by("h = Dropout(t, half, trains)")
    steps = drawn_by("r = RandomUniformLike(t)", "g = Less(r, tenth)", "c = Cast<to = 1>(g)", "h = Mul(t, c)")
    told = drawn_by("m = Identity(half)", "h = Dropout(t, m, trains)")
    for first, second in itertools.permutations((whole, steps, told), 2):
        found = diff(first, second)
        assert found.verdict == "agree", str(found)
        assert "random" in {row.status for row in found.rows}


@pytest.mark.parametrize("code", [onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16])
def test_a_ratio_that_is_rounded_to_half_precision_is_the_same(code: int) -> None:
    whole = drawn_by("h = Dropout(t, tenth, trains)")
    steps = drawn_by(f"r = Cast<to = {code}>(t)", "d = Dropout(r, tenth16, trains)", "h = Cast<to = 1>(d)")
    tenth = onnx.helper.make_tensor("tenth16", code, [], [0.1])
    steps.graph.initializer.append(tenth)
    steps.opset_import[0].version = whole.opset_import[0].version = 22
    for first, second in ((whole, steps), (steps, whole)):
        assert diff(first, second).verdict == "agree"
