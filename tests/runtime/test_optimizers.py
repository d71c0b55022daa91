"""The names by which ONNX Runtime's optimizers are switched off."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dort_compare.errors import ExecutionError
from dort_compare.runtime.optimizers import LEVELS, RULES, optimizers_of
from dort_compare.runtime.providers import SessionSettings
from dort_compare.trace.onnx import optimized

CPU = [("CPUExecutionProvider", {})]
FLOAT = TensorProto.FLOAT
RANDOM = np.random.default_rng(0)


def weight(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def model_of(nodes, inputs, outputs, opset=18, **constants) -> onnx.ModelProto:
    """``inputs`` and ``outputs`` are shapes of float32 by name; each node is (op, inputs, outputs, attributes)."""
    made = [helper.make_node(op, i.split(), o.split(), **(rest[0] if rest else {})) for op, i, o, *rest in nodes]
    values = [[helper.make_tensor_value_info(n, FLOAT, s) for n, s in side.items()] for side in (inputs, outputs)]
    graph = helper.make_graph(
        made, "g", *values, [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


X, Y = {"x": [2, 3]}, {"y": [2, 3]}
IMAGE, CONV = {"x": [1, 2, 4, 4]}, {"y": [1, 3, 4, 4]}
SAME = {"pads": [1, 1, 1, 1]}
BATCH_NORM = {"scale": weight(3), "b": weight(3), "m": weight(3), "v": abs(weight(3))}
ONE = np.int64([1])
TRIGGERS = {
    "EliminateIdentity": model_of([("Exp", "x", "a"), ("Identity", "a", "b"), ("Log", "b", "y")], X, Y),
    "EliminateSlice": model_of(
        [("Exp", "x", "a"), ("Slice", "a s e i", "b"), ("Log", "b", "y")], X, Y, s=0 * ONE, e=ONE * (2**63 - 1), i=ONE
    ),
    "UnsqueezeElimination": model_of(
        [("Unsqueeze", "w", "a", {"axes": [0]}), ("Add", "x a", "y")], X, Y, 12, w=weight(3)
    ),
    "EliminateDropout": model_of([("Exp", "x", "a"), ("Dropout", "a", "b"), ("Log", "b", "y")], X, Y),
    "ExpandElimination": model_of(
        [("Exp", "x", "a"), ("Expand", "a s", "b"), ("Log", "b", "y")], X, Y, s=np.int64([2, 3])
    ),
    "CastElimination": model_of([("Exp", "x", "a"), ("Cast", "a", "b", {"to": FLOAT}), ("Log", "b", "y")], X, Y),
    "PreShapeNodeElimination": model_of(
        [("Cast", "x", "a", {"to": TensorProto.DOUBLE}), ("Shape", "a", "b"), ("Cast", "b", "y", {"to": FLOAT})],
        X,
        {"y": [2]},
    ),
    "NoopElimination": model_of([("Exp", "x", "a"), ("Add", "a z", "b"), ("Log", "b", "y")], X, Y, z=np.float32(0)),
    "DivMulFusion": model_of([("Exp", "x", "a"), ("Div", "one a", "b"), ("Mul", "b x", "y")], X, Y, one=np.float32(1)),
    "FuseReluClip": model_of([("Relu", "x", "a"), ("Clip", "a lo", "y")], X, Y, lo=np.float32(-1)),
    "GemmSumFusion": model_of(
        [("Gemm", "x w", "a"), ("Sum", "a x", "y")], {"x": [3, 3]}, {"y": [3, 3]}, w=weight(3, 3)
    ),
    "GemmTransposeFusion": model_of(
        [("Transpose", "x", "t", {"perm": [1, 0]}), ("Gemm", "t w", "y")], {"x": [3, 2]}, {"y": [2, 4]}, w=weight(3, 4)
    ),
    "NotWhereFusion": model_of(
        [("Less", "x z", "c"), ("Not", "c", "n"), ("Where", "n x z", "y")], X, Y, z=np.float32(0.5)
    ),
    "ConvAddFusion": model_of(
        [("Conv", "x w", "a", SAME), ("Add", "a b", "y")], IMAGE, CONV, w=weight(3, 2, 3, 3), b=weight(3, 1, 1)
    ),
    "ConvMulFusion": model_of(
        [("Conv", "x w", "a", SAME), ("Mul", "a b", "y")], IMAGE, CONV, w=weight(3, 2, 3, 3), b=weight(3, 1, 1)
    ),
    "ConvBNFusion": model_of(
        [("Conv", "x w", "a", SAME), ("BatchNormalization", "a scale b m v", "y")],
        IMAGE,
        CONV,
        w=weight(3, 2, 3, 3),
        **BATCH_NORM,
    ),
    "Pad_Fusion": model_of(
        [("Pad", "x p", "a"), ("Conv", "a w", "y")], IMAGE, CONV, p=np.int64([0, 0, 1, 1] * 2), w=weight(3, 2, 3, 3)
    ),
    "MatMul_BatchNormalization_Fusion": model_of(
        [("MatMul", "x w", "a"), ("BatchNormalization", "a scale b m v", "y")], X, Y, w=weight(3, 3), **BATCH_NORM
    ),
    "ReluQuantRewrite": model_of(
        [("Relu", "x", "a"), ("QuantizeLinear", "a s z", "q"), ("DequantizeLinear", "q s z", "y")],
        X,
        Y,
        s=np.float32(0.1),
        z=np.uint8(0),
    ),
}


def calls(model: onnx.ModelProto, disabled: list[str]) -> list[tuple[str, ...]]:
    settings = SessionSettings(
        session_options={"graph_optimization_level": LEVELS["extended"], "log_severity_level": 4}
    )
    made = optimized(model, settings, CPU, disabled)
    return [(node.op_type, *node.input) for node in made.graph.node]


ALL_RULES = [rule for rules in RULES.values() for rule in rules]
SIMILAR = ["ConstantFolding", "MatMulAddFusion", "MatmulTransposeFusion", "ConvAddActivationFusion"]


@pytest.mark.parametrize("rule", ALL_RULES)
def test_the_name_of_a_rule_switches_it_off(rule):
    others = [name for name in ALL_RULES if name != rule] + SIMILAR
    model = TRIGGERS[rule]
    assert calls(model, [*others, rule]) != calls(model, others)


def test_a_name_that_onnx_runtime_does_not_know_is_passed_over_in_silence():
    """The reason why names have to be tested."""
    model = TRIGGERS["EliminateIdentity"]
    assert calls(model, ["EliminateIdentities"]) == calls(model, [])


def test_the_log_names_what_changes_a_model_and_no_longer_what_is_off():
    nodes = [
        ("Transpose", "w", "t", {"perm": [1, 0]}),
        ("MatMul", "x t", "a"),
        ("Identity", "a", "b"),
        ("Exp", "b", "y"),
    ]
    model = model_of(nodes, {**X, "w": [4, 3]}, {"y": [2, 4]})
    assert optimizers_of(model, "basic", [], CPU) == ["Level1_RuleBasedTransformer"]
    assert optimizers_of(model, "extended", [], CPU) == ["Level1_RuleBasedTransformer", "MatmulTransposeFusion"]
    assert optimizers_of(model, "all", ["MatmulTransposeFusion"], CPU) == ["Level1_RuleBasedTransformer"]
    assert optimizers_of(model, "all", ["EliminateIdentity"], CPU) == ["MatmulTransposeFusion"]


def test_a_model_that_names_no_optimizer_is_an_error():
    with pytest.raises(ExecutionError, match=r"named none of its optimizers: .*NoSuchOp"):
        optimizers_of(model_of([("NoSuchOp", "x", "y")], X, Y), "all", [], CPU)
