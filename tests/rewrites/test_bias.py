"""A mask that the turns of a Scan share becomes numbers to add, where it puts a low one in the place of scores."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from rules import CPU, ops

from dort_compare.rewrites import rewritten

CONSTANTS = "<float low = {-inf}, float finite = {-3e38}, float zero = {0.0}, float one = {1.0}>"
SEEN = np.array([[True, False, True], [False, True, True]])


def model(body: str) -> ir.Model:
    """Four turns, each over a piece of two rows and three columns."""
    text = f"""<ir_version: 10, opset_import: ["" : 20]>
    graph (float[4, 2, 3] x, bool[4, 2, 3] each, bool[2, 3] seen) => (float[4, 2, 3] y) {CONSTANTS} {{
        y = Scan<num_scan_inputs = 2,
                 body = turn (float[2, 3] s, bool[2, 3] own) => (float[2, 3] r) {{ {body} }}>(x, each)
    }}"""
    return ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))


def body_of(of: ir.Model) -> list[str]:
    (scan,) = (node for node in of.graph if node.op_type == "Scan")
    return [node.op_type for node in scan.attributes["body"].as_graph()]


def result(of: ir.Model) -> np.ndarray:
    draw = np.random.default_rng(0)
    feeds = {"x": draw.standard_normal((4, 2, 3), np.float32), "each": draw.random((4, 2, 3)) < 0.5, "seen": SEEN}
    session = ort.InferenceSession(ir.to_proto(of).SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


@pytest.mark.parametrize(
    "body",
    [
        "r = Where(seen, s, low)",
        "r = Where(seen, low, s)",
        "n = Neg(s) m = Where(seen, n, low) r = Identity(m)",
        "t = Transpose(s) p = MatMul(s, t) q = MatMul(p, s) r = Where(seen, q, finite)",
    ],
)
def test_scores_get_numbers_added(body: str) -> None:
    before = model(body)
    after = rewritten(before, CPU)
    assert "Add" in body_of(after)
    assert "Where" not in body_of(after)
    assert ops(after)[-2:] == ["Where", "Scan"]
    np.testing.assert_array_equal(result(after), result(before))


@pytest.mark.parametrize(
    "body",
    [
        "r = Where(own, s, low)",  # each turn has its own
        "r = Where(seen, s, zero)",
        "r = Where(seen, one, s)",
        "b = Equal(s, zero) r = Where(b, low, s)",
        "r = Where(seen, low, low)",
        "m = Where(own, s, finite) r = Where(seen, m, finite)",  # what both hide would get both numbers
        "r = Neg(s)",
    ],
)
def test_others_stay(body: str) -> None:
    before = model(body)
    assert body_of(rewritten(before, CPU)) == body_of(before)
