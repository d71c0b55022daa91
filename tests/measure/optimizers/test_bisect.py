"""Bugs that ONNX Runtime's optimizers really have (1.31), and which of them is named."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from dort_compare.errors import ExecutionError
from dort_compare.measure.optimizers import bisect as bisect_room
from dort_compare.measure.optimizers.bisect import bisect
from dort_compare.measure.optimizers.onnx_error import Departure, Unoptimized

CPU = [("CPUExecutionProvider", {})]
FLOAT, DOUBLE, INT64 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64


def node(op: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, ["" if i == "_" else i for i in inputs.split()], outputs.split(), outputs, **attributes)


def model_of(nodes: list[onnx.NodeProto], inputs: dict, outputs: dict, **constants: object) -> onnx.ModelProto:
    """``inputs`` and ``outputs`` hold dtype and shape by name."""
    values = [[helper.make_tensor_value_info(n, *v) for n, v in side.items()] for side in (inputs, outputs)]
    tensors = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "g", *values, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def gathers(x: str, start: str, y: str) -> list[onnx.NodeProto]:
    """``x`` backwards, which GatherToSliceFusion takes for an empty slice."""
    return [node("Range", f"{start} last step", f"{y}.i"), node("Gather", f"{x} {y}.i", y, axis=0)]


BACKWARDS = {"last": np.int64(-1), "step": np.int64(-1)}
START = {"s": (INT64, [])}
X = torch.rand(6, 2)
FIVE = torch.tensor(5)

PAD = model_of(
    [
        node("Transpose", "x", "t", perm=[0, 2, 3, 1]),
        node("Pad", "t pads _ axes", "p"),
        node("Transpose", "p", "y", perm=[0, 3, 1, 2]),
    ],
    {"x": (FLOAT, [1, 2, 3, 4])},
    {"y": (FLOAT, None)},
    pads=np.int64([1, 1, 1, 1]),
    axes=np.int64([1, 2]),
)
SCALE = model_of(
    [node("MatMul", "a b", "m"), node("Mul", "m c", "y")],
    {"a": (DOUBLE, [8, 8]), "b": (DOUBLE, [8, 8])},
    {"y": (DOUBLE, [8, 8])},
    c=np.float64(1 / 3),
)
GATHER = model_of(gathers("x", "s", "y"), {"x": (FLOAT, [6, 2]), **START}, {"y": (FLOAT, None)}, **BACKWARDS)


@pytest.mark.parametrize(
    ("model", "inputs", "level", "optimizer", "reason"),
    [
        (PAD, {"x": torch.rand(1, 2, 3, 4)}, "basic", "TransposeOptimizer", "indices element out of data bounds"),
        (SCALE, {n: torch.rand(8, 8).double() for n in "ab"}, "extended", "MatMulScaleFusion", "where .* is noise"),
        (GATHER, {"x": X, "s": FIVE}, "extended", "GatherToSliceFusion", r"shape \(0, 2\) instead of \(6, 2\)"),
    ],
    ids=["pad", "scale", "gather"],
)
def test_the_optimizer_that_departs_is_named(model, inputs, level, optimizer, reason):
    found = bisect(model, inputs, CPU)
    assert found.level == level
    (blamed,) = found.blamed
    assert (blamed.optimizer, blamed.needs) == (optimizer, ())
    assert blamed.departure.value == "y"
    assert blamed.departure.nodes
    assert re.search(reason, blamed.departure.reason)


def test_two_bugs_at_once_are_both_named():
    """Two outputs, two optimizers: one of them off alone does not do."""
    nodes = [*gathers("x", "s", "y"), node("MatMul", "a b", "m"), node("Mul", "m c", "z")]
    inputs = {"x": (FLOAT, [6, 2]), **START, "a": (DOUBLE, [8, 8]), "b": (DOUBLE, [8, 8])}
    outputs = {"y": (FLOAT, None), "z": (DOUBLE, [8, 8])}
    model = model_of(nodes, inputs, outputs, **BACKWARDS, c=np.float64(1 / 3))
    given = {"x": X, "s": FIVE, **{n: torch.rand(8, 8).double() for n in "ab"}}
    found = bisect(model, given, CPU)
    named = {blamed.optimizer: blamed.departure.value for blamed in found.blamed}
    assert named == {"GatherToSliceFusion": "y", "MatMulScaleFusion": "z"}


def test_a_clean_model_departs_nowhere():
    nodes = [node("Transpose", "w", "t", perm=[1, 0]), node("MatMul", "x t", "m"), node("Softmax", "m", "y")]
    model = model_of(nodes, {"x": (FLOAT, [5, 64]), "w": (FLOAT, [32, 64])}, {"y": (FLOAT, [5, 32])})
    found = bisect(model, {"x": torch.randn(5, 64), "w": torch.randn(32, 64)}, CPU)
    assert (found.departure, found.level, found.blamed) == (None, None, ())
    assert "MatmulTransposeFusion" in found.tried
    assert found.to_json()["verdict"] == "agree"


@pytest.mark.parametrize("returned", [["m", "y", "y"], ["y", "words"], ["words"], []])
def test_outputs_that_are_returned_twice_or_no_tensors_are_no_error(returned):
    nodes = [node("MatMul", "x w", "m"), node("Softmax", "m", "y"), node("Cast", "y", "words", to=TensorProto.STRING)]
    model = model_of(nodes, {name: (FLOAT, [4, 4]) for name in "xw"}, {})
    dtypes = {"m": FLOAT, "y": FLOAT, "words": TensorProto.STRING}
    model.graph.output.extend(helper.make_tensor_value_info(name, dtypes[name], [4, 4]) for name in returned)
    found = bisect(onnx.shape_inference.infer_shapes(model), {name: torch.randn(4, 4) for name in "xw"}, CPU)
    assert not found.departs


def test_numbers_that_torch_is_not_handed_are_no_error():
    few_bits = [node("Cast", "m", "f", to=TensorProto.FLOAT8E4M3FN), node("Cast", "f", "y", to=FLOAT)]
    nodes = [node("Cast", "one", "g", to=TensorProto.FLOAT8E4M3FN), node("Cast", "g", "w", to=FLOAT)]
    nodes += [node("MatMul", "x w", "m"), *few_bits]
    model = model_of(nodes, {"x": (FLOAT, [4, 4])}, {"y": (FLOAT, [4, 4])}, one=np.eye(4, dtype=np.float32))
    model.opset_import[0].version = 19
    found = bisect(onnx.shape_inference.infer_shapes(model), {"x": torch.randn(4, 4)}, CPU)
    assert not found.departs


def test_roundings_to_half_precision_that_are_left_out_are_noise():
    """Both terms cancel but for the rounding of the products, which ONNX Runtime leaves out where it removes casts."""
    half = [f"{name}h" for name in "xwvc"]
    nodes = [
        *(node("Cast", name[0], name, to=TensorProto.FLOAT16) for name in half),
        node("MatMul", "xh wh", "m"),
        node("Mul", "m vh", "p"),
        node("Sub", "p ch", "d"),
        node("Cast", "d", "y", to=FLOAT),
    ]
    model = model_of(nodes, {name: (FLOAT, [16, 16]) for name in "xwvc"}, {"y": (FLOAT, [16, 16])})
    typed = [helper.make_tensor_value_info(n, TensorProto.FLOAT16, [16, 16]) for n in (*half, *"mpd")]
    model.graph.value_info.extend(typed)
    torch.manual_seed(0)
    given = {name: torch.randn(16, 16).half().float() for name in "xwv"}
    given["c"] = (given["x"] @ given["w"]) * given["v"]
    found = bisect(model, given, CPU)
    assert (found.departure, found.forced, found.departs) == (None, None, False)


def halves(*names: str) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(name, TensorProto.FLOAT16, [2, 2]) for name in names]


def test_what_departs_with_all_optimizers_off_is_said_so():
    """0 / 1e-15 where the divisor is not rounded to float16, in which it is 0."""
    nodes = [node("Add", "x c", "a"), node("Cast", "a", "h", to=TensorProto.FLOAT16), node("Div", "h h", "y")]
    model = model_of(nodes, {"x": (FLOAT, [2, 2])}, {"y": (TensorProto.FLOAT16, [2, 2])}, c=np.float32(1e-15))
    model.graph.value_info.extend(halves("h"))
    found = bisect(model, {"x": torch.zeros(2, 2)}, CPU)
    assert found.departs
    assert (found.departure, found.blamed) == (None, ())
    assert found.forced is not None
    assert found.forced.departure.value == "y"
    assert "Div" in found.forced.departure.op_types
    assert "Cast" not in found.forced.departure.op_types[:-1], "the one before the division is gone"
    assert found.forced.departure.reason == "4 NaN in the unoptimized value where the optimized one has numbers"
    assert "CastFloat16Transformer" in found.forced.changes
    told = found.to_json()
    assert (told["verdict"], told["without_optimizers"]["departure"]["onnx_value"]) == ("diverge", "y")


def test_a_rounding_that_comes_back_where_a_value_is_exposed_is_found_missing():
    """The product is beyond float16, its quarter is not; exposed, the product is inf, and so is its quarter."""
    nodes = [node("MatMul", "x x", "m"), node("Reshape", "m shape", "r"), node("Div", "r four", "y")]
    half = (TensorProto.FLOAT16, [2, 2])
    model = model_of(nodes, {"x": half}, {"y": half}, shape=np.int64([2, 2]), four=np.float16(4))
    model.graph.value_info.extend(halves("m", "r"))
    found = bisect(model, {"x": torch.full((2, 2), 200.0).half()}, CPU)
    assert found.forced is not None
    assert (found.forced.departure.value, found.forced.departure.op_types[-2:]) == ("y", ("Div", "Cast"))
    assert found.forced.departure.reason == "4 inf in the unoptimized value where the optimized one is finite"


def test_what_a_difference_leaves_of_a_rounding_is_noise_with_all_optimizers_off_too():
    """1 + 2^-12 is 1 in float16, and the difference from 1 is 0, or 2^-12 where that was left out."""
    nodes = [
        node("Add", "x c", "a"),
        node("Cast", "a", "h", to=TensorProto.FLOAT16),
        node("Sub", "h one", "d"),
        node("Mul", "d big", "y"),
    ]
    constants = {"c": np.float32(2**-12), "one": np.float16(1), "big": np.float16(2**12)}
    model = model_of(nodes, {"x": (FLOAT, [2, 2])}, {"y": (TensorProto.FLOAT16, [2, 2])}, **constants)
    model.graph.value_info.extend(halves("h", "d"))
    found = bisect(model, {"x": torch.ones(2, 2)}, CPU)
    assert not found.departs, "it is a rounding of what the difference reads"


def test_what_is_drawn_by_chance_is_no_departure():
    nodes = [
        node("RandomUniformLike", "x", "r"),
        node("Cast", "r", "h", to=TensorProto.FLOAT16),
        node("Div", "h h", "y"),
    ]
    model = model_of(nodes, {"x": (FLOAT, [2, 2])}, {"y": (TensorProto.FLOAT16, [2, 2])})
    model.graph.value_info.extend(halves("h"))
    assert bisect(model, {"x": torch.ones(2, 2)}, CPU).forced is None


def test_a_rule_of_a_rule_based_transformer_is_named(monkeypatch):
    """With a bug put into it: where the rule is not off, what it leaves is wrong."""
    real = bisect_room.optimized

    def wrong(model, settings, providers, disabled):
        made = real(model, settings, providers, disabled)
        if "Identity" not in [n.op_type for n in made.graph.node]:
            next(n for n in made.graph.node if n.op_type == "Log").op_type = "Sqrt"
        return made

    monkeypatch.setattr(bisect_room, "optimized", wrong)
    model = model_of(
        [node("Exp", "x", "a"), node("Identity", "a", "b"), node("Log", "b", "y")],
        {"x": (FLOAT, [6, 2])},
        {"y": (FLOAT, [6, 2])},
    )
    found = bisect(model, {"x": X}, CPU)
    assert [blamed.optimizer for blamed in found.blamed] == ["EliminateIdentity"]
    assert found.blamed[0].departure.op_types == ("Sqrt",)


def quantized(x: str, y: str, made: str, step: str = "step") -> list[onnx.NodeProto]:
    """``y`` made of ``x`` by quantizing it, to ``made``, and back."""
    return [node("QuantizeLinear", f"{x} {step} zero", made), node("DequantizeLinear", f"{made} {step} zero", y)]


STEPS = {"step": np.float32(0.01), "zero": np.uint8(128)}
WIDE = {"x": (FLOAT, [1, 2, 4, 4])}
MOVES = {
    "reshaped": [node("Reshape", "a shape", "v")],
    "moved twice": [node("Transpose", "a", "t", perm=[0, 1, 3, 2]), node("Slice", "t zeros ones", "v")],
    "pooled": [node("MaxPool", "a", "v", kernel_shape=[2, 2])],
}


@pytest.mark.parametrize("moves", MOVES.values(), ids=MOVES)
def test_a_value_that_is_quantized_anyway_may_be_quantized_before_it_is_moved(moves):
    nodes = [node("Tanh", "x", "a"), *moves, *quantized("v", "d", "q"), node("Tanh", "d", "y")]
    constants = {"shape": np.int64([2, 16]), "zeros": np.int64([0]), "ones": np.int64([1])}
    model = model_of(nodes, WIDE, {"y": (FLOAT, None)}, **STEPS, **constants)
    found = bisect(model, {"x": torch.randn(1, 2, 4, 4)}, CPU)
    assert "QDQPropagationTransformer" in found.tried
    assert not found.departs, found


READ_BESIDES = {"a reader": [node("Neg", "v", "z")], "a caller": []}


@pytest.mark.parametrize("more", READ_BESIDES.values(), ids=READ_BESIDES)
def test_a_value_that_is_quantized_too_early_for_another_of_its_readers_departs(more):
    returned = {"y": (FLOAT, None), "z" if more else "v": (FLOAT, None)}
    behind = [*quantized("v", "y", "q"), *more]
    given = {"x": (FLOAT, [4, 4])}
    model = model_of([node("Transpose", "x", "v"), *behind], given, returned, **STEPS)
    early = [*quantized("x", "d", "p"), node("Transpose", "d", "v"), *behind]
    made = model_of(early, given, returned, **STEPS)
    found = Unoptimized(model, {"x": torch.rand(4, 4)}, CPU).inside(made)
    assert found is not None
    assert found.value == "v"


def test_a_wrong_value_departs_though_the_quantized_one_is_right():
    given, returned, behind = {"x": (FLOAT, [2, 2])}, {"y": (FLOAT, None)}, quantized("v", "y", "q")
    model = model_of([node("Transpose", "x", "v"), *behind], given, returned, **STEPS)
    wrong = [node("Transpose", "x", "t"), node("Mul", "t more", "v"), *behind]
    made = model_of(wrong, given, returned, **STEPS, more=np.float32(1.001))
    found = Unoptimized(model, {"x": torch.full((2, 2), 0.3)}, CPU).inside(made)
    assert found is not None
    assert found.value == "v"


@pytest.mark.parametrize("off", [0, 1, 3])
def test_what_lies_at_a_threshold_excuses_no_other_element(off):
    given, returned, half = {"x": (FLOAT, [8, 8])}, {"y": (FLOAT, None)}, np.float32(0.5)
    model = model_of([node("Round", "x", "y")], given, returned)
    up = [node("Add", "x half", "a"), node("Floor", "a", "r"), node("Add", "r off", "y")]
    made = model_of(up, given, returned, half=half, off=np.float32(off))
    levels = torch.from_numpy(np.random.default_rng(0).integers(-60, 60, (8, 8)).astype(np.float32))
    found = Unoptimized(model, {"x": levels / 2}, CPU).inside(made)
    assert (found is not None) == bool(off), found


def test_an_integer_kernel_that_moves_the_outputs_is_named():
    """A softmax by a table of exponentials, behind a value that is quantized before it is moved."""
    nodes = [
        *(node("Transpose", "x", "v", perm=[1, 0]), *quantized("v", "d", "q"), node("Softmax", "d", "s")),
        *quantized("s", "y", "r", "fine"),
    ]
    square, constants = (FLOAT, [12, 12]), {**STEPS, "fine": np.float32(0.001), "zero": np.uint8(0)}
    model = model_of(nodes, {"x": square}, {"y": square}, **constants)
    torch.manual_seed(0)
    found = bisect(model, {"x": torch.rand(12, 12)}, CPU)
    assert found.level == "extended"
    assert [blamed.optimizer for blamed in found.blamed] == ["QDQSelectorActionTransformer"]
    assert found.blamed[0].departure.op_types == ("QLinearSoftmax",)


def departing(when):
    """A stand-in for running models: they depart where ``when`` holds of the optimizers that are on."""

    class Search(bisect_room._Search):
        def _departure(self, level, disabled):
            return Departure("wrong") if when({"A", "B", "C", "D"} - set(disabled)) else None

        def changing(self, level, disabled):
            return [name for name in "ABCD" if name not in disabled]

    return Search


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (lambda on: "B" in on, [("B", ())]),
        (lambda on: {"A", "C"} <= on, [("C", ("A",))]),
        (lambda on: "A" in on or "D" in on, [("D", ()), ("A", ())]),
        (lambda on: "A" in on or {"B", "D"} <= on, [("B", ("D",)), ("A", ())]),
        (lambda on: True, []),
    ],
    ids=["one", "two together", "two apart", "one, and two together", "none of them"],
)
def test_who_is_to_blame(monkeypatch, when, expected):
    monkeypatch.setattr(bisect_room, "_Search", departing(when))
    found = bisect(GATHER, {"x": X, "s": FIVE}, CPU)
    assert found.departure == Departure("wrong")
    assert sorted((blamed.optimizer, blamed.needs) for blamed in found.blamed) == sorted(expected)


def test_a_model_that_does_not_run_unoptimized_is_an_error():
    with pytest.raises(ExecutionError, match="no value for s"):
        Unoptimized(GATHER, {"x": X}, CPU)
