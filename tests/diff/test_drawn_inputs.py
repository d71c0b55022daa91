"""What is drawn for inputs that nobody gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from graph_text import model
from pairs_of_models import attention, weights

from dort_compare.errors import DortError, ExecutionError, UsageError
from dort_compare.onnx_diff import diff


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({}, "hold nothing for 'x'"),
        ({"z": torch.zeros(4, 8)}, "neither model takes"),
        ({"x": torch.zeros(4, 7)}, "takes float32 4x8"),
        ({"x": torch.zeros(4, 8, dtype=torch.float64)}, "takes float32 4x8"),
        ("inputs.safetensors", "inputs is a str; give tensors by input name"),
    ],
)
def test_wrong_inputs_are_refused(inputs: Any, words: str) -> None:
    with pytest.raises(DortError, match=words):
        diff(attention(), attention(), inputs)


def test_random_indices_stay_inside_the_table() -> None:
    text = "agraph (int64[50] i) => (float[50, 8] y) { t = Identity(table)\n j = Identity(i)\n y = Gather(table, j) }"
    both = model(text, table=weights("w")["w"][:3])
    assert diff(both, both).verdict == "agree"


OPEN = "agraph (float[N, 8] x) => (float[N, 8] y) { y = Tanh(x) }"
SHAPED = "agraph (float[2, 8] x) => (float[2, 8] y) { y = Tanh(x) }"


def without_shape(text: str) -> onnx.ModelProto:
    made = model(text)
    made.graph.input[0].type.tensor_type.ClearField("shape")
    return made


@pytest.mark.parametrize("other", [model(OPEN), without_shape(OPEN)], ids=["open", "undeclared"])
@pytest.mark.parametrize("is_first", [True, False])
def test_an_input_is_drawn_in_the_sizes_that_either_model_declares(other: onnx.ModelProto, is_first: bool) -> None:
    found = diff(other, model(SHAPED)) if is_first else diff(model(SHAPED), other)
    assert found.verdict == "agree"
    (row,) = [row for row in found.rows if row.pair.first == "y"]
    assert row.inherited is not None
    assert row.inherited.numel == 16


def test_an_input_without_a_shape_is_asked_for() -> None:
    with pytest.raises(UsageError, match=r"input 'x' declares no shape to draw values in; give --inputs"):
        diff(without_shape(OPEN), without_shape(OPEN))
    assert diff(without_shape(OPEN), without_shape(OPEN), inputs={"x": torch.ones(3, 8)}).verdict == "agree"


SIZED = """m (int64 n, float[8, N] x) => (float[L, 4, 2] y) {
    length = Reshape(n, single)
    sizes = Concat<axis = 0>(length, rest)
    shaped = Reshape(x, sizes)
    y = Tanh(shaped)
}"""


def sized(rest: list[int]) -> onnx.ModelProto:
    return model(SIZED, single=np.int64([1]), rest=np.int64(rest))


def test_an_integer_that_is_a_size_of_a_shape_is_drawn_as_open_sizes_are() -> None:
    found = diff(sized([4, 2]), sized([4, 2]))
    assert found.verdict == "agree", str(found)


def test_where_a_model_fails_on_sizes_that_were_drawn_the_inputs_are_asked_for() -> None:
    other = sized([2, 2])
    with pytest.raises(ExecutionError, match=r"first: ONNX Runtime failed.*drawn; give --inputs$"):
        diff(other, other)
    given = {"n": torch.tensor(6), "x": torch.randn(8, 3)}
    assert diff(other, other, given).verdict == "agree"
    with pytest.raises(ExecutionError, match="second: ONNX Runtime failed") as failed:
        diff(other, sized([2, 3]), given)
    assert "--inputs" not in str(failed.value)


def test_where_a_model_fails_whatever_is_drawn_no_inputs_are_asked_for() -> None:
    masked = model("m (bool[2] keep, float[3] x) => (float[N] y) { y = Where(keep, x, x) }")
    with pytest.raises(ExecutionError, match="first: ONNX Runtime failed") as failed:
        diff(masked, masked)
    assert "--inputs" not in str(failed.value)


ROOT = "agraph (float[1] v, float[4] x) => (float[4] y) { s = Add(v, small) r = Sqrt(s) y = Div(x, r) }"
NORM = """
    agraph (float[2, 1] x, float[1] g, float[1] b, float[1] m, float[1] v) => (float[2, 1] y) {
        y = BatchNormalization(x, g, b, m, v)
    }"""


@pytest.mark.parametrize("text", [ROOT, NORM])
def test_variances_are_drawn_as_such(text: str) -> None:
    graph = model(text, small=np.float32(1e-5))
    for seed in range(8):
        assert diff(graph, graph, seed=seed).verdict == "agree"
