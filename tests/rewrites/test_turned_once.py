"""A large matrix that a product reads by columns is transposed once, and ONNX Runtime does not undo it."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from rules import CPU, CUDA, ops
from torch import nn

from dort_compare import compare
from dort_compare.rewrites import rewritten

TURNED = "t = Transpose<perm = [1, 0]>(g)"
PRODUCT = f"{TURNED} y = MatMul(t, x)"
WEIGHT = "float[512, 512] y"


def model(body: str = PRODUCT, outputs: str = WEIGHT, dtype: str = "float", **inputs: str) -> ir.Model:
    """A model in text form, with the types of all values."""
    sizes = {"g": "[512, 512]", "x": "[512, 512]", **inputs}
    given = ", ".join(f"{dtype}{each} {name}" for name, each in sizes.items())
    head = '<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>'
    text = f"{head} graph ({given}) => ({outputs.replace('float', dtype)}) {{ {body} }}"
    return ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))


def session(of: ir.Model, optimized: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(optimized), 3
    return ort.InferenceSession(ir.to_proto(of).SerializeToString(), options, providers=["CPUExecutionProvider"])


def reads_by_columns(path: Path) -> bool:
    """Whether a product of a model has its first operand transposed."""
    attributes = (attribute for node in onnx.load(path).graph.node for attribute in node.attribute)
    return any(attribute.name == "transA" and attribute.i for attribute in attributes)


FIRES = {
    "of a gradient": (PRODUCT, WEIGHT),
    "after a view": ("r = Reshape(b, whole) t = Transpose<perm = [1, 0]>(r) y = MatMul(t, x)", WEIGHT),
    "without an order": ("t = Transpose(g) y = MatMul(t, x)", WEIGHT),
    "of a scaled product": (f"{TURNED} y = com.microsoft.FusedMatMul<alpha = 0.5>(t, x)", WEIGHT),
    "with an addend": (f"{TURNED} p = MatMul(t, x) y = Add(p, g)", WEIGHT),
    "read by others": (f"{TURNED} y = MatMul(t, x) z = MatMul(x, t) w = Neg(t)",
                       f"{WEIGHT}, float[512, 512] z, float[512, 512] w"),
}  # fmt: skip


@pytest.mark.parametrize("case", FIRES)
def test_it_is_transposed_once(case: str, tmp_path: Path) -> None:
    body, outputs = FIRES[case]
    before = model(f"whole = Constant<value_ints = [512, 512]>() {body}", outputs, b="[2, 256, 512]")
    after = rewritten(before, CPU)
    draw = np.random.default_rng(0)
    feeds = {value.name: draw.standard_normal(value.shape.numpy(), np.float32) for value in after.graph.inputs}
    sessions = session(before, tmp_path / "before.onnx"), session(after, tmp_path / "after.onnx")
    plain, turned = (each.run(None, feeds) for each in sessions)
    for right, found in zip(plain, turned, strict=True):
        np.testing.assert_allclose(found, right, rtol=0, atol=1e-4)
    assert [reads_by_columns(tmp_path / f"{name}.onnx") for name in ("before", "after")] == [True, False]


STAYS = {
    "read by rows": ("t = Transpose<perm = [1, 0]>(g) y = MatMul(x, t)", WEIGHT, {}),
    "no product": (f"{TURNED} y = Add(t, x)", WEIGHT, {}),
    "few multiplications": (PRODUCT, "float[256, 512] y", {"g": "[512, 256]"}),
    "few columns": (PRODUCT, "float[1024, 256] y", {"g": "[2048, 1024]", "x": "[2048, 256]"}),
    "unknown sizes": (PRODUCT, WEIGHT, {"g": "[N, 512]"}),
    "several matrices": ("t = Transpose<perm = [0, 2, 1]>(g) y = MatMul(t, x)", "float[2, 512, 512] y",
                         {"g": "[2, 512, 512]"}),
    "of several matrices": (PRODUCT, "float[2, 512, 512] y", {"x": "[2, 512, 512]"}),
    "another order": ("t = Transpose<perm = [1, 0, 2]>(g) y = MatMul(t, x)", "float[512, 2, 512] y",
                      {"g": "[2, 512, 512]"}),
}  # fmt: skip


@pytest.mark.parametrize("case", STAYS)
def test_where_it_does_not_pay_nothing_happens(case: str, caplog: pytest.LogCaptureFixture) -> None:
    body, outputs, inputs = STAYS[case]
    before = model(body, outputs, **inputs)
    with caplog.at_level(logging.DEBUG, logger="dort_compare.rewrites"):
        assert ops(rewritten(before, CPU)) == ops(before)
    assert any(message.startswith("turned_once") and not message.endswith("made") for message in caplog.messages)


def test_other_dtypes_and_providers_stay() -> None:
    of_float64, before = model(dtype="double"), model()
    assert ops(rewritten(of_float64, CPU)) == ops(of_float64)
    assert ops(rewritten(before, CUDA)) == ops(before)


def test_the_verdict_on_a_layers_gradient_is_clean(caplog: pytest.LogCaptureFixture) -> None:
    inputs = (torch.randn(2, 256, 512, generator=torch.Generator().manual_seed(0)),)
    with caplog.at_level(logging.DEBUG, logger="dort_compare.rewrites"):
        report = compare(nn.Linear(512, 512), inputs, backward=True, optimized=True, rewrites=True)
    assert report.verdict == "agree", report.causes
    assert sum(message.startswith("turned_once") and message.endswith("made") for message in caplog.messages) >= 1
