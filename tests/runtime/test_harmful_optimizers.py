"""Optimizers of ONNX Runtime that are off where they would harm a model."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import pytest
import torch
from onnx import parser
from torch import Tensor

from dort_compare import DebugBackend
from dort_compare.runtime.harmful_optimizers import harmful_for


def model(body: str, dtype: str = "float") -> onnx.ModelProto:
    head = f'<ir_version: 10, opset_import: ["": 20]> g ({dtype}[2] x) => ({dtype}[2] y, {dtype}[2] z)'
    return parser.parse_model(head + "{" + body + "}")


IN_LOOP = """
    a = Abs(x)
    n = Constant<value: tensor = int64 {3}>()
    on = Constant<value: tensor = bool {1}>()
    y, z = Loop(n, on, a, a) <body = b (int64 i, bool go, float[2] s, float[2] t) => (bool on, float[2] u, float[2] v) {
        on = Identity(go) r = Exp(s) u = Identity(r) v = Add(r, t)
    }>"""


@pytest.mark.parametrize(
    ("body", "harms"),
    [
        ("a = Abs(x) y = Identity(a) z = Neg(x)", False),
        ("a = Abs(x) b = Identity(a) y = Identity(b) z = Neg(x)", False),
        ("a = Abs(x) y = Identity(a) z = Neg(a)", True),
        ("a = Abs(x) b = Identity(a) y = Identity(b) z = Neg(a)", True),
        ("a = Abs(x) b = Identity(a) y = Identity(b) z = Neg(b)", True),
        ("a = Abs(x) y = Identity(a) z = Identity(a)", True),
        ("a = Identity(x) y = Neg(a) z = Abs(a)", False),
        (IN_LOOP, True),
    ],
)
def test_a_copy_that_is_returned_of_what_others_read(body: str, harms: bool) -> None:
    assert harmful_for(model(body)) == (["EliminateIdentity"] if harms else [])


def test_a_factor_of_float64() -> None:
    assert harmful_for(model("y = Abs(x) z = Neg(x)", "double")) == ["MatMulScaleFusion"]


def one(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    copy = x.abs().clone()
    return copy, torch.addmm(b, copy, w.t())


def of_a_copy(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    copy = x.abs().clone()
    return copy.clone(), torch.addmm(b, copy, w.t())


@pytest.mark.parametrize("function", [one, of_a_copy])
def test_a_copy_beside_a_product(function: Callable[..., tuple[Tensor, ...]]) -> None:
    """ONNX Runtime 1.31 calls the model invalid once it has optimized it."""
    operands = torch.randn(1, 3), torch.randn(3, 3), torch.randn(3)
    found = torch.compile(function, backend=DebugBackend(fallback=False))(*operands)
    torch.testing.assert_close(found, function(*operands), rtol=1e-5, atol=1e-6)
