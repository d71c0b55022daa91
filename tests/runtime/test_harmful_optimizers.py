"""Optimizers of ONNX Runtime that are off where they would harm a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import onnx
import pytest
import torch
from onnx import parser
from torch import Tensor, nn
from torch.nn import functional as F

from dort_compare import DebugBackend
from dort_compare.backends import onnxrt
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


LAYER_NORM = ["LayerNormFusion", "LayerNormFusionL1"]
TWO, FOUR, SMALL = (f"c = Constant<value: tensor = float {{{number}}}>()" for number in ("2", "4", "1e-30"))


@pytest.mark.parametrize(
    ("body", "harmful"),
    [
        (f"{TWO} p = Pow(x, c) y = ReduceMean(p) z = Neg(x)", []),
        (f"{FOUR} p = Pow(x, c) y = ReduceMean(p) z = Neg(x)", LAYER_NORM),
        ("p = Pow(x, x) y = ReduceMean(p) z = Neg(x)", LAYER_NORM),
        (f"{FOUR} y = Pow(x, c) z = ReduceMean(x)", []),
        (f"{SMALL} a = Mul(x, c) y = MatMul(a, x) z = Neg(x)", ["MatMulScaleFusion"]),
        (f"{SMALL} a = MatMul(x, x) y = Div(a, c) z = Neg(x)", ["MatMulScaleFusion"]),
        (
            f"{SMALL} {TWO.replace('c', 'd')} a = Mul(x, c) b = Mul(a, d) y = MatMul(b, x) z = Neg(x)",
            ["MatMulScaleFusion"],
        ),
        (f"{TWO} a = Mul(x, c) y = MatMul(a, x) z = Neg(x)", []),
        (f"{SMALL} a = Mul(x, c) b = Add(a, x) y = MatMul(b, x) z = Neg(x)", []),
        ("t = Transpose(x) y = BatchNormalization(t, x, x, x, x) z = Neg(x)", ["MatMul_BatchNormalization_Fusion"]),
        (
            "t = Transpose(x) r = Reshape(t, x) y = BatchNormalization(r, x, x, x, x) z = Neg(x)",
            ["MatMul_BatchNormalization_Fusion"],
        ),
        ("r = Reshape(x, x) y = BatchNormalization(r, x, x, x, x) z = Transpose(x)", []),
        ("p = Pad(x, x) y = AveragePool<kernel_shape = [2]>(p) z = Neg(x)", ["Pad_Fusion"]),
        ("p = Pad(x, x) y = MaxPool<kernel_shape = [2]>(p) z = Neg(x)", []),
        # what no session takes
        ("y = Identity() z = Pow(x)", []),
        ("y = Identity(z) z = Identity(y)", []),
        ("a = Reshape(b, x) b = Reshape(a, x) y = BatchNormalization(a, x, x, x, x) z = Neg(x)", []),
        (f"{SMALL} a = Mul(b, c) b = Mul(a, c) y = Neg(a) z = Neg(x)", []),
    ],
)
def test_what_is_off(body: str, harmful: list[str]) -> None:
    assert harmful_for(model(body)) == harmful


def one(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    copy = x.abs().clone()
    return copy, torch.addmm(b, copy, w.t())


def of_a_copy(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    copy = x.abs().clone()
    return copy.clone(), torch.addmm(b, copy, w.t())


def fourth_power(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    d = x - x.mean(-1, keepdim=True)
    return d / (d.pow(4).mean(-1, keepdim=True) + 1e-6).sqrt() * w + b


CALLS: dict[str, tuple[Callable[..., Any], Sequence[Tensor]]] = {
    "a copy beside a product": (one, (torch.randn(1, 3), torch.randn(3, 3), torch.randn(3))),
    "a copy of it": (of_a_copy, (torch.randn(1, 3), torch.randn(3, 3), torch.randn(3))),
    "no layer norm": (fourth_power, (torch.randn(2, 8), torch.randn(8), torch.randn(8))),
    "no layer norm in a branch": (
        lambda x, w, b: torch.cond(x.sum() < 1e9, fourth_power, lambda x, w, b: x + w + b, (x, w, b)),
        (torch.randn(2, 8), torch.randn(8), torch.randn(8)),
    ),
    "a factor that leads back into the range": (
        lambda a, b: (a * 1e-30) @ (b * 1e-30),
        (torch.randn(4, 3) * 1e25, torch.randn(3, 5) * 1e25),
    ),
    "a quotient that does": (lambda a, b: (a / 1e20) @ b, (torch.randn(4, 3) * 1e20, torch.randn(3, 5) * 1e20)),
    "windows that begin in pads": (
        lambda x: F.avg_pool2d(F.pad(x, (0, 1, 0, 1)), 2, 2, ceil_mode=True),
        (torch.randn(2, 3, 6, 6),),
    ),
    "pads as wide as a window": (lambda x: F.avg_pool2d(F.pad(x, (2, 2, 2, 2)), 2, 2), (torch.randn(2, 3, 6, 6),)),
}


@pytest.mark.parametrize("backend", ["dort", "debug"])
@pytest.mark.parametrize("name", CALLS)
def test_no_optimizer_changes_what_is_computed(name: str, backend: str) -> None:
    function, operands = CALLS[name]
    chosen = DebugBackend(fallback=False) if backend == "debug" else partial(onnxrt, options={"fallback": False})
    found = torch.compile(function, backend=chosen)(*operands)
    torch.testing.assert_close(found, function(*operands), rtol=1e-4, atol=1e-6)


class Turned(nn.Module):
    """A product of matrices that is turned before its batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.norm = nn.Parameter(torch.randn(6, 8)), nn.BatchNorm1d(8)
        nn.init.uniform_(self.norm.running_mean), nn.init.uniform_(self.norm.running_var, 0.5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm((x @ self.w).t())


def test_a_frozen_product_that_is_turned_before_its_batch_norm() -> None:
    torch.manual_seed(0)
    model, x = Turned().eval(), torch.randn(8, 6)
    compiled = torch.compile(model, backend="dort", options={"freeze": True, "fallback": False})
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
