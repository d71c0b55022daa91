"""A number a row, taken from a matrix product, as one more term of its sums."""

from __future__ import annotations

import logging

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from rules import CPU, CUDA, ops, values
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from dort_compare import compare
from dort_compare.rewrites import rewritten

SIZES = {"a": [2, 64, 3], "b": [2, 3, 64], "r": [2, 64, 1]}
PRODUCT = "p = MatMul(a, b)"
SCALED = "p = com.microsoft.FusedMatMul<alpha = 0.3>(a, b)"
OUTPUT = "float[2, 64, 64] y"


def model(body: str, outputs: str = OUTPUT, dtype: str = "float", **sizes: list[int | str]) -> ir.Model:
    """A model in text form, with the types of all values."""
    inputs = ", ".join(f"{dtype}{each} {name}".replace("'", "") for name, each in {**SIZES, **sizes}.items())
    head = '<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>'
    values = f"<{dtype}[2, 64, 64] p>" if "microsoft" in body else ""
    proto = onnx.parser.parse_model(
        f"{head} graph ({inputs}) => ({outputs.replace('float', dtype)}) {values} {{ {body} }}"
    )
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


def feeds(**changed: float) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    found = {name: draw.standard_normal(sizes, dtype=np.float32) for name, sizes in SIZES.items()}
    for name, number in changed.items():
        found[name][0, 5, 0] = number
    return found


@pytest.mark.parametrize("product", [PRODUCT, SCALED], ids=["MatMul", "FusedMatMul"])
@pytest.mark.parametrize("row", [1.0, 1e6, np.inf, -np.inf, np.nan], ids=str)
def test_the_values_stay(product: str, row: float) -> None:
    before = model(f"{product} y = Sub(p, r)")
    after = rewritten(before, CPU)
    assert ops(after) == ["Constant", "Concat", "Concat", before.graph[0].op_type]
    given = feeds(r=row)
    got, plain = values(after, given), values(before, given)
    size = np.abs(given["a"]) @ np.abs(given["b"]) + np.abs(np.nan_to_num(given["r"], posinf=0, neginf=0))
    is_finite = np.isfinite(plain)
    assert (np.abs(got - plain)[is_finite] < 1e-6 * size[is_finite]).all()
    np.testing.assert_array_equal(got[~is_finite], plain[~is_finite])


STAYS = {
    "no product": ("p = Mul(a, a) y = Sub(p, a)", "float[2, 64, 3] y", {}),
    "the product is read": (f"{PRODUCT} y = Sub(p, r) z = Neg(p)", f"{OUTPUT}, float[2, 64, 64] z", {}),
    "the product is an output": (f"{PRODUCT} y = Sub(p, r)", f"{OUTPUT}, float[2, 64, 64] p", {}),
    "from the row": (f"{PRODUCT} y = Sub(r, p)", OUTPUT, {}),
    "a number a column": (f"{PRODUCT} y = Sub(p, r)", OUTPUT, {"r": [2, 1, 64]}),
    "a row for all matrices": (f"{PRODUCT} y = Sub(p, r)", OUTPUT, {"r": [64, 1]}),
    "one number": (f"{PRODUCT} y = Sub(p, r)", OUTPUT, {"r": [1, 1, 1]}),
    "operands of different rank": (f"{PRODUCT} y = Sub(p, r)", OUTPUT, {"b": [3, 64]}),
    "unknown sizes": (f"{PRODUCT} y = Sub(p, r)", "float[N, 64, 64] y", {"a": ["N", 64, 3], "r": ["N", 64, 1]}),
    "a product too small": (f"{PRODUCT} y = Sub(p, r)", "float[2, 4, 64] y", {"a": [2, 4, 3], "r": [2, 4, 1]}),
    "transposed operands": (
        "p = com.microsoft.FusedMatMul<transB = 1>(a, b) y = Sub(p, r)", OUTPUT, {"b": [2, 64, 3]}
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", STAYS)
def test_where_a_value_would_be_missed_or_another_meant_nothing_happens(
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    body, outputs, sizes = STAYS[case]
    before = model(body, outputs, **sizes)
    with caplog.at_level(logging.DEBUG, logger="dort_compare.rewrites"):
        assert ops(rewritten(before, CPU)) == ops(before)
    assert any(message.startswith("row_into_matmul") and not message.endswith("made") for message in caplog.messages)


def test_other_dtypes_and_providers_stay() -> None:
    of_float64, before = model(f"{PRODUCT} y = Sub(p, r)", dtype="double"), model(f"{PRODUCT} y = Sub(p, r)")
    assert ops(rewritten(of_float64, CPU)) == ops(of_float64)
    assert ops(rewritten(before, CUDA)) == ops(before)


class Attention(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return scaled_dot_product_attention(q, k, v)


def inputs() -> tuple[Tensor, ...]:
    draw = torch.Generator().manual_seed(0)
    return tuple(torch.randn(2, 3, 64, 4, generator=draw, requires_grad=True) for _ in range(3))


def test_the_verdict_on_the_gradient_of_attention_is_clean(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="dort_compare.rewrites"):
        report = compare(Attention(), inputs(), backward=True, optimized=True, rewrites=True)
    assert report.verdict == "agree", report.causes
    assert sum(message.startswith("row_into_matmul") and message.endswith("made") for message in caplog.messages) >= 2


def test_a_wrong_rewrite_is_a_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dort_compare.rewrites.rules.row.np.full", lambda sizes, _, dtype: np.zeros(sizes, dtype))
    report = compare(Attention(), inputs(), backward=True, optimized=True, rewrites=True)
    assert report.verdict == "diverge"
