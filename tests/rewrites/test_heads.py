"""Products whose batch and heads are one axis get two again, and nothing else changes."""

from __future__ import annotations

import logging

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from rules import CPU

from dort_compare.rewrites import rewritten
from dort_compare.rewrites.graph import sizes_of

INPUTS = "float[2, 3, 6, 4] a, float[2, 3, 4, 5] b, float[6, 6, 4] flat, float[2, 3, 5, 4] turned"
CONSTANTS = "<int64[3] one = {6, -1, 4}, int64[3] other = {6, 4, -1}, int64[4] apart = {2, 3, 6, 5}, "
CONSTANTS += "int64[4] three = {3, 2, 6, 5}, int64[4] halves = {3, 2, 6, 4}, "
CONSTANTS += "int64[3] odd = {6, 5, 4}>"
A, B = "x = Reshape(a, one) ", "w = Reshape(b, other) "


def model(body: str, outputs: str) -> ir.Model:
    text = f'<ir_version: 10, opset_import: ["" : 20]> graph ({INPUTS}) => ({outputs}) {CONSTANTS} {{ {body} }}'
    return ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))


def values(of: ir.Model) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    feeds = {value.name: draw.standard_normal(sizes_of(value), np.float32) for value in of.graph.inputs}
    session = ort.InferenceSession(ir.to_proto(of).SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip((each.name for each in session.get_outputs()), session.run(None, feeds), strict=True))


APART, ONE = "float[2, 3, 6, 5] y", "float[6, 6, 5] p"
FIRES = {
    "between reshapes": (f"{A}{B} p = MatMul(x, w) y = Reshape(p, apart)", APART),
    "told by what follows": (f"{B} p = MatMul(flat, w) y = Reshape(p, apart)", APART),
    "told by what is before": (f"{A}{B} p = MatMul(x, w)", ONE),
    "past nothing": (f"{A} i = Identity(x) {B} p = MatMul(i, w) j = Identity(p) y = Reshape(j, apart)", APART),
    "turned": (f"{A} t = Reshape(turned, odd) w = Transpose<perm = [0, 2, 1]>(t) p = MatMul(x, w) "
               "y = Reshape(p, apart)", APART),
    "read as it was too": (f"{A}{B} p = MatMul(x, w) y = Reshape(p, apart) z = Neg(p)", f"{APART}, float[6, 6, 5] z"),
    "shown twice": (f"{A}{B} p = MatMul(x, w) y = Reshape(p, apart) z = Reshape(p, apart)",
                    f"{APART}, float[2, 3, 6, 5] z"),
    "shown as other heads too": (f"{A}{B} p = MatMul(x, w) y = Reshape(p, apart) n = Reshape(p, three) "
                                 "z = Neg(n)", f"{APART}, float[3, 2, 6, 5] z"),
    "of other heads": (f"f = Reshape(a, halves) x = Reshape(f, one) {B} p = MatMul(x, w) y = Reshape(p, three) "
                       "n = Neg(y) z = Reshape(n, apart)", "float[2, 3, 6, 5] z"),
    "returned both ways": (f"{A}{B} p = MatMul(x, w) y = Reshape(p, apart)", f"{APART}, {ONE}"),
}  # fmt: skip


@pytest.mark.parametrize("case", FIRES)
def test_a_product_gets_batch_and_heads(case: str) -> None:
    before = model(*FIRES[case])
    after = rewritten(before, CPU)
    (product,) = (node for node in after.graph if node.op_type == "MatMul")
    assert sorted(sizes_of(product.outputs[0]) or []) == [2, 3, 5, 6]
    assert [len(sizes_of(value) or []) for value in product.inputs] == [4, 4]
    got, expected = values(after), values(before)
    assert got.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(got[name], array)


STAYS = {
    "nothing tells of heads": ("w = Transpose<perm = [0, 2, 1]>(flat) y = MatMul(flat, w)", "float[6, 6, 6] y"),
    "the reshape mixes rows": ("w = Reshape(turned, mixed) y = MatMul(flat, w)", "float[6, 6, 5] y"),
    "one matrix for all": (f"{A} s = Slice(flat, start, end) w = Transpose<perm = [0, 2, 1]>(s) y = MatMul(x, w)",
                           "float[6, 6, 6] y"),
}  # fmt: skip


@pytest.mark.parametrize("case", STAYS)
def test_others_stay(case: str, caplog: pytest.LogCaptureFixture) -> None:
    body, output = STAYS[case]
    text = f'<ir_version: 10, opset_import: ["" : 20]> graph ({INPUTS}) => ({output}) {CONSTANTS[:-1]}, '
    text += f"int64[1] start = {{0}}, int64[1] end = {{1}}, int64[3] mixed = {{6, 4, 5}}> {{ {body} }}"
    before = ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))
    with caplog.at_level(logging.DEBUG, logger="dort_compare.rewrites"):
        after = rewritten(before, CPU)
    assert not any(message.startswith("with_heads") and message.endswith("made") for message in caplog.messages)
    np.testing.assert_array_equal(values(after)["y"], values(before)["y"])
