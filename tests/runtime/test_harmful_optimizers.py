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
from dort_compare.errors import ExecutionError
from dort_compare.runtime.harmful_optimizers import harmful_for
from dort_compare.runtime.providers import SessionSettings
from dort_compare.runtime.session import make_session


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
        # what no session takes
        ("y = Identity() z = Identity(y)", False),
        ("y = Identity(z) z = Identity(y)", False),
    ],
)
def test_a_copy_that_is_returned_of_what_others_read(body: str, harms: bool) -> None:
    assert harmful_for(model(body)) == ["EliminateIdentity"] * harms


def test_a_model_that_no_session_takes_is_refused_by_onnx_runtime_alone() -> None:
    broken = model("a = Identity(x) y = Identity(a) z = Neg(a)")
    broken.graph.node[0].input[0] = ""
    broken.graph.node.add(op_type="Constant")
    broken.graph.node.add(op_type="Pow")
    assert harmful_for(broken) == ["EliminateIdentity"]
    with pytest.raises(ExecutionError):
        make_session(broken, SessionSettings(), [("CPUExecutionProvider", {})])


LAYER_NORM = ["LayerNormFusion", "LayerNormFusionL1"]
SCALES = ["MatMulScaleFusion"]
SMALL = "c = Constant<value: tensor = float {1e-30}>()"
TWO = "c = Constant<value: tensor = float {2}>()"


@pytest.mark.parametrize(
    ("body", "harmful"),
    [
        (f"{TWO} p = Pow(x, c) y = ReduceMean(p) z = Neg(x)", []),
        (f"{TWO.replace('float {2}', 'float16 {16384}')} p = Pow(x, c) y = ReduceMean(p) z = Neg(x)", []),
        (f"{TWO.replace('2}', '4}')} p = Pow(x, c) y = ReduceMean(p) z = Neg(x)", LAYER_NORM),
        (f"{TWO} d = Cast<to = 1>(c) p = Pow(x, d) q = Identity(p) y = ReduceMean(q) z = Neg(x)", LAYER_NORM),
        ("p = Pow(x, x) y = ReduceMean(p) z = Neg(x)", LAYER_NORM),
        ("y = Pow(x, x) z = Neg(x)", []),
        ("t = Transpose(x) y = BatchNormalization(t, x, x, x, x) z = Neg(x)", ["MatMul_BatchNormalization_Fusion"]),
        ("t = Reshape(x, x) y = BatchNormalization(t, x, x, x, x) z = Neg(x)", ["MatMul_BatchNormalization_Fusion"]),
        ("y = BatchNormalization(x, x, x, x, x) z = Neg(x)", []),
        (f"{SMALL} a = Mul(x, c) y = MatMul(a, x) z = Neg(x)", SCALES),
        (f"{SMALL} a = MatMul(x, x) y = Div(a, c) z = Neg(x)", SCALES),
        ("c = Constant<value_float = 1e-30>() a = Mul(x, c) y = MatMul(a, x) z = Neg(x)", SCALES),
        (f"{TWO} d = Neg(c) a = Mul(x, d) y = MatMul(a, x) z = Neg(x)", SCALES),
        (f"{TWO} a = Mul(x, c) y = MatMul(a, x) z = Neg(x)", []),
        (f"{TWO} d = Expand(c, s) a = Mul(x, d) y = MatMul(a, x) z = Neg(x)", []),
        ("a = Mul(x, x) y = MatMul(a, x) z = Neg(x)", []),
        (f"{SMALL} a = Mul(x, c) b = Transpose(a) d = Cast<to = 1>(b) y = MatMul(d, x) z = Neg(x)", SCALES),
        (f"{SMALL} a = MatMul(x, x) b = Reshape(a, s) y = Div(b, c) z = Neg(x)", SCALES),
        (f"{SMALL} {TWO.replace('c', 'd', 1)} a = Mul(x, c) b = Mul(a, d) y = MatMul(b, x) z = Neg(x)", SCALES),
        (f"{SMALL} a = Mul(x, c) b = Add(a, x) y = MatMul(b, x) z = Neg(x)", []),
        (f"{SMALL} a = Mul(x, c) y = Neg(a) z = MatMul(x, x)", []),
        (f"{SMALL} a = Mul(b, c) b = Mul(a, c) y = Neg(a) z = Neg(x)", []),
        ("p = Pad(x, x) y = AveragePool<kernel_shape = [2]>(p) z = Neg(x)", ["Pad_Fusion"]),
        ("p = Pad(x, x) y = MaxPool<kernel_shape = [2]>(p) z = Neg(x)", []),
    ],
)
def test_what_is_off(body: str, harmful: list[str]) -> None:
    assert harmful_for(model(body)) == harmful


def test_a_model_of_float64_keeps_its_factors() -> None:
    assert harmful_for(model("y = Abs(x) z = Neg(x)", "double")) == SCALES


def test_what_stands_in_a_function_counts() -> None:
    head = '<ir_version: 10, opset_import: ["": 20, "f": 1]> g (float[2] x) => (float[2] y) { y = f.means(x) }'
    function = '<domain: "f", opset_import: ["": 20]> means (x) => (y) { p = Pow(x, x) y = ReduceMean(p) }'
    assert harmful_for(parser.parse_model(head + function)) == LAYER_NORM


def one(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    copy = x.abs().clone()
    return copy, torch.addmm(b, copy, w.t())


def of_a_copy(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    copy = x.abs().clone()
    return copy.clone(), torch.addmm(b, copy, w.t())


def fourth_power(x: Tensor, w: Tensor, b: Tensor, copy: Callable[[Tensor], Tensor] = torch.abs) -> Tensor:
    d = x - x.mean(-1, keepdim=True)
    return d / (copy(d.pow(4)).mean(-1, keepdim=True) + 1e-6).sqrt() * w + b


CALLS: dict[str, tuple[Callable[..., Any], Sequence[Tensor]]] = {
    "a copy beside a product": (one, (torch.randn(1, 3), torch.randn(3, 3), torch.randn(3))),
    "a copy of it": (of_a_copy, (torch.randn(1, 3), torch.randn(3, 3), torch.randn(3))),
    "no layer norm": (fourth_power, (torch.randn(2, 8), torch.randn(8), torch.randn(8))),
    "no layer norm in a branch": (
        lambda x, w, b: torch.cond(
            x.sum() < 1e9, lambda *each: fourth_power(*each), lambda x, w, b: x + w + b, (x, w, b)
        ),
        (torch.randn(2, 8), torch.randn(8), torch.randn(8)),
    ),
    "no layer norm behind a copy": (
        lambda x, w, b: fourth_power(x, w, b, torch.clone),
        (torch.randn(2, 8), torch.randn(8), torch.randn(8)),
    ),
    "a factor before a transpose": (
        lambda a, b: (a * 1e-30).t() @ b,
        (torch.randn(3, 4) * 1e19, torch.randn(3, 5) * 1e19),
    ),
    "a factor of weights": (lambda a, b: F.linear(a, b * 1e-30), (torch.randn(4, 3) * 1e19, torch.randn(5, 3) * 1e19)),
    "two factors": (lambda a, b: (a / 4000 / 4000) @ b, (torch.randn(4, 3) * 1e22, torch.randn(3, 5) * 1e19)),
    "factors that multiply on both sides": (
        lambda a, b: (a * 2.5e-4) @ (b * 2.5e-4),
        (torch.randn(4, 3) * 1e21, torch.randn(3, 5) * 1e20),
    ),
    "factors on both sides": (
        lambda a, b: (a / 4000) @ (b / 4000),
        (torch.randn(4, 3) * 1e21, torch.randn(3, 5) * 1e20),
    ),
    "a factor that leads back into the range": (
        lambda a, b: (a * 1e-30) @ (b * 1e-30),
        (torch.randn(4, 3) * 1e25, torch.randn(3, 5) * 1e25),
    ),
    "a quotient that does": (lambda a, b: (a / 1e20) @ b, (torch.randn(4, 3) * 1e20, torch.randn(3, 5) * 1e20)),
    "windows that begin in pads behind a copy": (
        lambda x: F.avg_pool2d(F.pad(x, (0, 1, 0, 1)).clone(), 2, 2, ceil_mode=True),
        (torch.randn(2, 3, 6, 6),),
    ),
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

    def __init__(self, turned: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.w, self.norm, self.turned = nn.Parameter(torch.randn(6, 8)), nn.BatchNorm1d(8), turned
        nn.init.uniform_(self.norm.running_mean), nn.init.uniform_(self.norm.running_var, 0.5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.turned(x @ self.w))


TURNS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda x: x.t(),
    "transposed and copied": lambda x: x.t().contiguous(),
    "viewed": lambda x: x.view(1, 8, 8),
}


@pytest.mark.parametrize("turn", TURNS)
def test_a_frozen_product_that_is_turned_before_its_batch_norm(turn: str) -> None:
    torch.manual_seed(0)
    model, x = Turned(TURNS[turn]).eval(), torch.randn(8, 6)
    compiled = torch.compile(model, backend="dort", options={"freeze": True, "fallback": False})
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
