"""What is repeated is repeated late: the values stay."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from rules import CPU, CUDA, ops, values

from dort_compare import compare
from dort_compare.models import LlamaConfig, build
from dort_compare.rewrites import rewritten

SIZES: dict[str, list[int | str]] = {"x": [2, 16, 32], "r": [2, 16, 1]}
GRADIENT = "e = Expand(r, full) d = Div(e, c) t = Mul(x, two) y = Mul(d, t)"


def model(body: str, outputs: str = "float[2, 16, 32] y", dtype: str = "float", **sizes: list[int | str]) -> ir.Model:
    """A model in text form, its constants initializers, with the types of all values."""
    inputs = ", ".join(f"float{each} {name}".replace("'", "") for name, each in {**SIZES, **sizes}.items())
    text = f'<ir_version: 10, opset_import: ["" : 20]> graph ({inputs}) => ({outputs}) {{ {body} }}'
    proto = onnx.parser.parse_model(text.replace("float", dtype) if dtype != "float" else text)
    of = np.dtype({"float": "float32"}.get(dtype, dtype))
    held = {"c": np.array(3, of), "two": np.array(2, of), "full": np.array([2, 16, 32])}
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in held.items())
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto, data_prop=True))


def feeds(of: ir.Model) -> dict[str, Any]:
    draw = np.random.default_rng(0)
    return {
        str(value.name): draw.standard_normal([*map(int, value.shape or ())]).astype(value.dtype.numpy())
        for value in of.graph.inputs
        if value.dtype is not None
    }


@pytest.mark.parametrize("dtype", ["float", "double", "float16"])
@pytest.mark.parametrize("providers", [CPU, CUDA], ids=["cpu", "cuda"])
def test_the_gradient_of_a_mean_of_squares_takes_one_pass_and_stays(dtype: str, providers: Any) -> None:
    before = model(GRADIENT, dtype=dtype)
    after = rewritten(before, providers)
    assert [op for op in ops(after) if op != "Constant"] == ["Div", "Mul", "Mul"]
    given = feeds(before)
    np.testing.assert_array_equal(values(after, given), values(before, given))


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("order", ["e, x", "x, e", "e, c", "c, e"])
@pytest.mark.parametrize("row", [[2, 16, 1], [32], [1], [1, 16, 1]], ids=str)
def test_every_order_of_operands_stays(op: str, order: str, row: list[int | str]) -> None:
    tail = "y = Add(z, x)" if "c" in order else "y = Neg(z)"
    before = model(f"e = Expand(r, full) z = {op}({order}) {tail}", r=row)
    after = rewritten(before, CPU)
    assert "Expand" not in ops(after)
    given = feeds(before)
    np.testing.assert_array_equal(values(after, given), values(before, given))


STAYS = {
    "it is an output": (
        "e = Expand(r, full) y = Div(e, c) z = Neg(e)",
        "float[2, 16, 32] e, float[2, 16, 32] y",
    ),
    "others read it": (
        "e = Expand(r, full) y = Div(e, c) z = Exp(e)",
        "float[2, 16, 32] z, float[2, 16, 32] y",
    ),
    "it meets another row": ("e = Expand(r, full) y = Mul(e, r)", "float[2, 16, 32] y"),
    "it meets itself": ("e = Expand(r, full) y = Mul(e, e)", "float[2, 16, 32] y"),
}


@pytest.mark.parametrize("case", STAYS)
def test_where_a_value_would_be_missed_or_nothing_won_nothing_happens(case: str) -> None:
    before = model(*STAYS[case])
    after = rewritten(before, CPU)
    assert sorted(op for op in ops(after) if op not in ("Constant", "Neg")) == sorted(
        op for op in ops(before) if op not in ("Constant", "Neg")
    )
    given = feeds(before)
    np.testing.assert_array_equal(values(after, given), values(before, given))


@pytest.mark.parametrize("sizes", [{"x": ["N", 16, 32]}, {"r": ["N", 16, 1]}])
def test_unknown_sizes_stay(sizes: dict[str, list[int | str]]) -> None:
    before = model("e = Expand(r, full) y = Mul(e, x)", "float[N, 16, 32] y", **sizes)
    assert "Expand" in ops(rewritten(before, CPU))


def test_the_verdict_on_a_step_of_a_llama_is_clean(caplog: pytest.LogCaptureFixture) -> None:
    module, inputs = build("decoder", LlamaConfig(hidden=64, heads=4, intermediate=96), seq=16)
    with caplog.at_level(logging.DEBUG, logger="dort_compare.rewrites"):
        report = compare(module, inputs, backward=True, optimized=True, rewrites=True)
    assert report.verdict == "agree", report.causes
    assert sum(message.startswith("expand_late") and message.endswith("made") for message in caplog.messages) >= 2
