"""What a model makes of constants alone is computed once, where ONNX Runtime would not fold them."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
import torch

from dort_compare.runtime import SessionSettings
from dort_compare.runtime.folded import folded
from dort_compare.runtime.session import Session, make_session

CPU = torch.device("cpu")
HEAD = '<ir_version: 10, opset_import: ["" : 20]> graph (float[4, 6] x, float[3, 6] w, float[3] b) => (float[4, 3] y)'
HELD = "<int64[2] full = {4, 3}, float two = {2}>"
CASES = {
    "arithmetic": ("v = Mul(w, two) t = Transpose(v) p = MatMul(x, t) y = Add(p, b)", ["Mul"]),
    "a view that products read as well": ("t = Transpose(w) p = MatMul(x, t) y = Add(p, b)", []),
    "a view before arithmetic": ("t = Transpose(w) v = Neg(t) p = MatMul(x, v) y = Add(p, b)", ["Transpose", "Neg"]),
    "what grows": ("e = Expand(b, full) t = Transpose(w) p = MatMul(x, t) y = Add(p, e)", []),
    "what is random": ("u = RandomNormalLike(w) t = Transpose(u) p = MatMul(x, t) z = Sub(p, p) y = Add(z, b)", []),
    "all of it": ("s = Exp(b) n = Neg(s) z = ReduceSum(x) m = Mul(z, n) y = Expand(m, full)", ["Exp", "Neg"]),
    "two of one": (
        "m, n = Split<axis = 1, num_outputs = 2>(w) d = Sub(m, n) z = ReduceSum(d) t = Transpose(w) p = MatMul(x, t) "
        "y = Add(p, z)", ["Split", "Sub", "ReduceSum"],
    ),
}  # fmt: skip


def model(body: str) -> ir.Model:
    proto = onnx.parser.parse_model(f"{HEAD} {HELD} {{ {body} }}")
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto, data_prop=True))


@pytest.mark.parametrize("case", CASES)
def test_it_is_computed_once_and_the_rest_as_before(case: str) -> None:
    body, once = CASES[case]
    made: list[list[str]] = []

    def make(part: ir.Model) -> Session:
        made.append([node.op_type for node in part.graph])
        return make_session(part, SessionSettings(("cpu",)), [("CPUExecutionProvider", {})])

    whole, inputs = model(body), {"x": torch.randn(4, 6), "w": torch.randn(3, 6), "b": torch.randn(3)}
    (right,) = make(whole).run(inputs, {"y": CPU})
    session = folded(whole, {name: inputs[name] for name in ("w", "b")}, make)
    run = session.prepared(["x"], {"y": CPU})
    for _ in range(2):
        torch.testing.assert_close(run([inputs["x"]])[0], right)
    every, *before, rest = made
    assert sorted(once) == sorted(op for part in before for op in part)
    assert sorted(rest) == sorted(_without(every, once))


def _without(ops: list[str], some: list[str]) -> list[str]:
    left = [*ops]
    for op in some:
        left.remove(op)
    return left
