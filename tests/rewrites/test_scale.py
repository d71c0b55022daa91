"""A factor that becomes the alpha of a matrix product: where it may, where it may not, and what it computes."""

from __future__ import annotations

import logging
from typing import Any

import onnx
import onnx_ir as ir
import pytest
import torch
from rules import CPU
from torch import Tensor, nn

from dort_compare import compare
from dort_compare.models import LlamaConfig, build
from dort_compare.rewrites import rewritten
from dort_compare.runtime.providers import SessionSettings
from dort_compare.runtime.session import make_session

HEADER = '<ir_version: 10, opset_import: ["" : 20]> graph (float[4, 6] a, float[6, 8] b) => '
CONSTANTS = (
    "zeros = Constant<value_ints = [0, 0]>() fours = Constant<value_ints = [4, 4]>() "
    "zero = Constant<value_ints = [0]>()"
)
FACTOR = "<float half = {0.5}, float tiny = {1e-6}, float none = {0}, int64[3] s = {2, 2, 8}, int64[2] t = {4, 8}>"


def model(outputs: str, body: str) -> ir.Model:
    """A model in text form, with two matrices as inputs and the types of all values."""
    parsed = onnx.parser.parse_model(f"{HEADER} ({outputs}) {FACTOR} {{ {CONSTANTS} {body} }}")
    return ir.from_proto(onnx.shape_inference.infer_shapes(parsed))


def ops(of: ir.Model) -> list[str]:
    return [node.op_type for node in of.graph if node.op_type != "Constant"]


def values(of: ir.Model) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    feeds = {"a": torch.randn(4, 6, generator=generator), "b": torch.randn(6, 8, generator=generator)}
    session = make_session(of, SessionSettings(), [("CPUExecutionProvider", {})])
    return session.run(feeds, {str(value.name): torch.device("cpu") for value in of.graph.outputs})


FIRES = {
    "behind": ("float[4, 8] y", "p = MatMul(a, b) y = Mul(p, half)", ["FusedMatMul"]),
    "behind, the number first": ("float[4, 8] y", "p = MatMul(a, b) y = Mul(half, p)", ["FusedMatMul"]),
    "behind a change of shape": (
        "float[2, 2, 8] y",
        "p = MatMul(a, b) r = Reshape(p, s) i = Identity(r) y = Mul(i, half)",
        ["FusedMatMul", "Reshape", "Identity"],
    ),
    "twice": ("float[4, 8] y", "p = MatMul(a, b) q = Mul(p, half) y = Mul(q, half)", ["FusedMatMul"]),
    "before": ("float[4, 8] y", "p = Mul(a, half) y = MatMul(p, b)", ["FusedMatMul"]),
    "before two": (
        "float[4, 8] y, float[4, 8] z",
        "p = Mul(a, half) i = Identity(p) y = MatMul(i, b) c = Neg(b) z = MatMul(i, c)",
        ["Identity", "FusedMatMul", "Neg", "FusedMatMul"],
    ),
    "before, on both sides": (
        "float[4, 4] y",
        "c = Slice(b, zeros, fours) p = Mul(c, half) y = MatMul(p, p)",
        ["Slice", "FusedMatMul"],
    ),
}
STAYS = {
    "the product is read unscaled": ("float[4, 8] y, float[4, 8] z", "p = MatMul(a, b) y = Mul(p, half) z = Neg(p)"),
    "the product is an output": ("float[4, 8] p, float[4, 8] y", "p = MatMul(a, b) y = Mul(p, half)"),
    "no product near": ("float[4, 6] y", "p = Neg(a) y = Mul(p, half)"),
    "read by another too": ("float[4, 8] y, float[4, 6] z", "p = Mul(a, half) y = MatMul(p, b) z = Neg(p)"),
    "itself an output": ("float[4, 6] p, float[4, 8] y", "p = Mul(a, half) y = MatMul(p, b)"),
    "no number": ("float[4, 8] y", "p = MatMul(a, b) y = Mul(p, p)"),
    "too small a number": ("float[4, 8] y", "p = Mul(a, tiny) y = MatMul(p, b)"),
    "zero": ("float[4, 8] y", "p = MatMul(a, b) y = Mul(p, none)"),
    "a vector": ("float[4, 8] y", "v = Unsqueeze(half, zero) p = MatMul(a, b) y = Mul(p, v)"),
}


@pytest.mark.parametrize("case", FIRES)
def test_what_is_computed_stays(case: str) -> None:
    outputs, body, expected = FIRES[case]
    before = model(outputs, body)
    after = rewritten(before, CPU)
    assert ops(after) == expected
    assert [value.name for value in after.graph.outputs] == [value.name for value in before.graph.outputs]
    for one, other in zip(values(before), values(after), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
    assert "Mul" in ops(before)


@pytest.mark.parametrize("case", STAYS)
def test_where_a_value_would_be_missed_nothing_happens(case: str, caplog: pytest.LogCaptureFixture) -> None:
    outputs, body = STAYS[case]
    before = model(outputs, body)
    with caplog.at_level(logging.DEBUG, logger="dort_compare.rewrites"):
        assert ops(rewritten(before, CPU)) == ops(before)
    assert caplog.messages
    assert not any(message.endswith("made") for message in caplog.messages)


def test_float64_keeps_its_factor() -> None:
    text = (
        '<ir_version: 10, opset_import: ["" : 20]> graph (double[4, 6] a, double[6, 8] b) => (double[4, 8] y) '
        "<double third = {0.3333333333333333}> { p = MatMul(a, b) y = Mul(p, third) }"
    )
    assert "Mul" in ops(rewritten(ir.from_onnx_text(text), CPU))


@pytest.mark.parametrize("part", ["attention", "decoder"])
def test_the_comparison_finds_nothing_wrong_with_it(part: str) -> None:
    module, inputs = build(part, LlamaConfig(hidden=32, heads=4, intermediate=48, vocabulary=50), batch=2, seq=16)
    report = compare(module, inputs, backward=True, optimized=True, rewrites=True)
    assert report.verdict == "agree", report.causes
    assert report.optimized is not None
    fused = {row.fused: row.status for row in report.optimized.rows if "FusedMatMul" in row.op_types}
    assert any({"bmm"} < set(names) and any(n.startswith("mul") for n in names) for names in fused)
    assert set(fused.values()) == {"ok"}


class Scaled(nn.Module):
    """A product times a number."""

    def forward(self, x: Tensor) -> Any:
        return (x @ x.T) * 0.3


def test_a_rewrite_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from dort_compare.rewrites.rules import scale

    right = scale._set_alpha
    monkeypatch.setattr(
        scale, "_set_alpha", lambda model, product, factor, nodes: right(model, product, 1.01 * factor, nodes)
    )
    report = compare(Scaled(), (torch.randn(4, 4),), optimized=True, rewrites=True)
    assert report.verdict == "diverge"
    assert "FusedMatMul" in report.causes[0].reason
