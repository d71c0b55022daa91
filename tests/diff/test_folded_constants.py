"""One model computes what the other holds as a constant."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from graph_text import model
from onnx import TensorProto, helper, numpy_helper
from pairs_of_models import CONSTANT, FOLDED, UNFOLDED, folded, node_of, normalized, off

from dort_compare.onnx_diff import diff
from dort_compare.trace.graph_run import EngineName

ROUNDED = """m (float[4,8] x) => (float[4,8] y) {{
    turned = Transpose<perm = [1, 0]>(w)
    narrow = Cast<to = {0}>(turned)
    flat = Reshape(narrow, sizes)
    wide = Cast<to = 1>(flat)
    scaled = Mul(x, wide)
    wave = Tanh(scaled)
    y = Add(wave, x)
}}"""
WORN = {"w": np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32), "sizes": np.int64([4, 8])}


HALVES = [TensorProto.FLOAT16, TensorProto.BFLOAT16]


def constants_folded(original: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """The model as ONNX Runtime's basic optimizations leave it."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folder / "folded.onnx")
    ort.InferenceSession(original.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(folder / "folded.onnx")


@pytest.mark.parametrize("half", HALVES)
def test_a_constant_folded_behind_casts_that_lose_digits_stands_for_what_was_rounded(half: int, tmp_path: Path) -> None:
    original = model(ROUNDED.format(half), **WORN)
    folded = constants_folded(original, tmp_path)
    assert [tensor.name for tensor in folded.graph.initializer] == ["wide"]
    found = diff(original, folded)
    assert found.verdict == "agree", str(found)
    assert next(row.pair.first for row in found.rows if row.pair.second == "wide" and row.pair.is_main) == "wide"
    assert diff(folded, original).verdict == "agree"


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("fault", ["wide", "wave"])
def test_a_fault_behind_what_was_folded_is_named_first(fault: str, half: int, tmp_path: Path) -> None:
    original = model(ROUNDED.format(half), **WORN)
    wrong = constants_folded(original, tmp_path)
    if fault == "wave":
        node_of(wrong.graph, "wave").op_type = "Atan"
    else:
        (tensor,) = wrong.graph.initializer
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(1.05), "wide"))
    found = diff(original, wrong)
    assert found.first_divergence is not None
    assert found.first_divergence.row.pair.second == fault, str(found)


@pytest.mark.parametrize("result", ["c", "d"])
def test_a_fault_in_what_the_first_has_folded_is_named_and_no_constant_is(result: str) -> None:
    first = model(FOLDED, **folded())
    assert diff(first, model(UNFOLDED, **normalized())).verdict == "agree"
    found = diff(first, off(result))
    (cause,) = found.findings.causes
    assert cause.row.pair.second == result, str(found)
    assert [label.split()[0] for label in cause.nodes[1]] == ["Conv", "BatchNormalization"]


@pytest.mark.parametrize("result", ["c", "d"])
def test_a_fault_in_what_the_second_has_folded_is_named_and_no_constant_is(result: str) -> None:
    second = model(FOLDED, **folded())
    assert diff(model(UNFOLDED, **normalized()), second).verdict == "agree"
    found = diff(off(result), second)
    (cause,) = found.findings.causes
    assert cause.row.pair.second == result, str(found)
    assert [label.split()[0] for label in cause.nodes[0]] == ["Conv", "BatchNormalization"]


@pytest.mark.parametrize("result", ["c", "d"])
def test_a_fault_in_what_the_first_has_folded_is_named_where_the_second_takes_its_constants(result: str) -> None:
    """As the models of dumps take parameters."""
    second = off(result)
    given = {tensor.name: torch.from_numpy(numpy_helper.to_array(tensor).copy()) for tensor in second.graph.initializer}
    taken = [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in second.graph.initializer]
    second.graph.input.extend(taken)
    del second.graph.initializer[:]
    x = torch.randn(1, 4, 6, 6, generator=torch.Generator().manual_seed(0))
    found = diff(model(FOLDED, **folded()), second, {"x": x, **given})
    assert [cause.row.pair.second for cause in found.findings.causes] == [result], str(found)


def test_a_wrong_bias_before_what_the_first_has_folded_is_named_by_what_is_computed_of_it() -> None:
    found = diff(model(FOLDED, **folded()), model(UNFOLDED, **normalized("b1")))
    assert [cause.row.pair.second for cause in found.findings.causes] == ["c"], str(found)


@pytest.mark.parametrize("name", ["w1", "b2"])
def test_a_wrong_constant_is_named_where_nothing_is_folded(name: str) -> None:
    found = diff(model(UNFOLDED, **normalized()), model(UNFOLDED, **normalized(name)))
    assert [cause.row.pair.second for cause in found.findings.causes] == [name], str(found)


EXPONENTIAL = "agraph () => (float[2] y) <float[2] k = {1.0, 2.0}> { h = Exp(k) y = Neg(h) }"
INITIALIZER = "agraph () => (float[2] y) <float[2] y = {-2.7182817, -7.389056}> {}"


@pytest.mark.parametrize("engine", ["ort", "reference"])
@pytest.mark.parametrize("folded", [CONSTANT, INITIALIZER])
def test_a_model_that_is_folded_whole_is_held_against_what_computes_it(folded: str, engine: EngineName) -> None:
    wrong = folded.replace("7.389", "7.489")
    for first, second in ((EXPONENTIAL, folded), (folded, EXPONENTIAL)):
        found = diff(model(first), model(second), engine=engine)
        assert found.verdict == "agree", str(found)
        assert [(row.pair.first, row.pair.second) for row in found.rows] == [("y", "y")]
        assert found.findings.reason == "1 computed values paired, and none departs"
    for first, second in ((EXPONENTIAL, wrong), (wrong, EXPONENTIAL)):
        found = diff(model(first), model(second), engine=engine)
        assert found.verdict == "diverge"
        assert found.findings.reason.startswith("max |first - second| = 0.1")


def test_two_models_that_are_folded_whole_are_held_against_each_other() -> None:
    found = diff(model(CONSTANT), model(INITIALIZER))
    assert (found.verdict, found.findings.reason) == ("agree", "1 returned values paired, and none departs")
    assert diff(model(CONSTANT), model(INITIALIZER.replace("7.389", "7.489"))).verdict == "diverge"


def test_one_of_two_outputs_may_be_folded() -> None:
    text = "agraph (float[2] x) => (float[2] y, float[2] c) {} {{ y = Tanh(x) {} }}"
    first = text.format("<float[2] k = {1.0, 2.0}>", "c = Exp(k)")
    second = text.format("<float[2] c = {2.7182817, 7.389056}>", "")
    for one, other in ((first, second), (second, first)):
        assert diff(model(one), model(other)).findings.reason == "2 computed values paired, and none departs"
        wrong = [graph.replace("7.389", "7.489") for graph in (one, other)]
        found = diff(*map(model, wrong))
        assert found.first_divergence is not None
        assert found.first_divergence.row.pair.second == "c"
