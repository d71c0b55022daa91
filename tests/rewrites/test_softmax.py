"""Attention's softmax in one kernel: where it may be, where it may not, and what it computes."""

from __future__ import annotations

import importlib
import logging
import math
from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from every_pair import every_pair
from rules import CPU, ops
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from dort_compare import DebugBackend, compare
from dort_compare.rewrites import rewritten

CONSTANTS = (
    "<float low = {0xff800000}, float zero = {0.0}, float one = {1.0}, int64[1] last = {-1}, int64[1] row = {2}>"
)
SCORES = "s = MatMul(q, k)"
SHIFT = "h = ReduceMax<keepdims=1>(s, last) e = Equal(h, low) f = Where(e, zero, h) d = Sub(s, f)"
WEIGHTS = "w = Exp(d) t = ReduceSum<keepdims=1>(w, last) z = Equal(t, zero) n = Where(z, one, t) p = Div(w, n)"
WHOLE = f"{SCORES} {SHIFT} {WEIGHTS} y = MatMul(p, v)"
OUTPUT = "float[1, 2, 3, 4] y"
SIZES = {"q": (1, 2, 3, 4), "k": (1, 2, 4, 5), "v": (1, 2, 5, 4), "b": (3, 5)}


def model(body: str, outputs: str = OUTPUT) -> ir.Model:
    """A model in text form, with the types of all values."""
    inputs = "float[1, 2, 3, 4] q, float[1, 2, 4, 5] k, float[1, 2, 5, 4] v, float[3, 5] b, bool[3, 5] m, float[5] u"
    text = f'<ir_version: 10, opset_import: ["" : 20]> graph ({inputs}) => ({outputs}) {CONSTANTS} {{ {body} }}'
    proto = onnx.parser.parse_model(text.replace("0xff800000", "0"))
    next(c for c in proto.graph.initializer if c.name == "low").float_data[:] = [-math.inf]
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


FIRES = {
    "products": (WHOLE, ["MatMul", "Softmax", "MatMul"]),
    "products with a bias": (WHOLE.replace("s = MatMul(q, k)", "r = MatMul(q, k) s = Add(r, b)"), "Where"),
    "products where a mask is": (WHOLE.replace("s = MatMul(q, k)", "r = MatMul(q, k) s = Where(m, r, low)"), "Where"),
    "products with a number": (WHOLE.replace("s = MatMul(q, k)", "r = MatMul(q, k) s = Mul(r, one)"), "MatMul"),
}
STAYS = {
    "one row of values": WHOLE.replace("MatMul(p, v)", "MatMul(p, u)"),
    "no product": WHOLE.replace("MatMul(q, k)", "Add(b, b)"),
    "hidden scores are finite": WHOLE.replace("s = MatMul(q, k)", "r = MatMul(q, k) s = Where(m, r, zero)"),
    "another axis": WHOLE.replace("(s, last)", "(s, row)"),
    "another axis is summed": WHOLE.replace("(w, last)", "(w, row)"),
    "another number stands for none": WHOLE.replace("Equal(h, low)", "Equal(h, one)"),
    "a sum of 0 is another number": WHOLE.replace("Where(z, one, t)", "Where(z, low, t)"),
    "other values are shifted": WHOLE.replace("Sub(s, f)", "Sub(f, s)"),
    "no exponential": WHOLE.replace("Exp", "Abs"),
    "the sum is divided": WHOLE.replace("Div(w, n)", "Div(n, w)"),
    "values of probabilities": WHOLE.replace("MatMul(p, v)", "MatMul(v, p)"),
    "the sum is wanted": f"{WHOLE} l = Log(n) ",
    "the maximum is wanted": f"{WHOLE} l = Neg(h)",
    "the probabilities are wanted": f"{WHOLE} l = Neg(p)",
}


@pytest.mark.parametrize("case", FIRES)
def test_it_is_one_kernel_behind(case: str) -> None:
    body, expected = FIRES[case]
    after = rewritten(model(body), CPU)
    assert "Softmax" in ops(after)
    assert "Exp" not in ops(after)
    assert ops(after) == expected or ops(after)[-1] == expected
    assert [value.name for value in after.graph.outputs] == ["y"]


@pytest.mark.parametrize("case", FIRES)
def test_it_computes_what_the_nodes_compute_also_for_a_query_that_sees_no_key(case: str) -> None:
    drawn = np.random.default_rng(0)
    given = {name: drawn.standard_normal(size, np.float32) for name, size in SIZES.items()}
    given |= {"m": np.array([[True] * 5, [False] * 5, [True, False] * 2 + [True]]), "u": np.zeros(5, np.float32)}
    given["b"] = np.where(given["m"], given["b"], -np.inf).astype(np.float32)
    before = model(FIRES[case][0])
    right, found = (
        ort.InferenceSession(ir.to_proto(each).SerializeToString(), providers=["CPUExecutionProvider"]).run(None, given)
        for each in (before, rewritten(model(FIRES[case][0]), CPU))
    )
    np.testing.assert_allclose(found[0], right[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", STAYS)
def test_where_a_value_would_be_missed_or_another_meant_nothing_happens(
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    body = STAYS[case]
    sizes = {
        "one row of values": "float[1, 2, 3] y",
        "values of probabilities": "float[1, 2, 5, 5] y",
        "the probabilities are wanted": "float[1, 2, 3, 5] l",
    }
    wanted = f"{OUTPUT}, {sizes.get(case, 'float[1, 2, 3, 1] l')}" if " l = " in body else sizes.get(case, OUTPUT)
    before = model(body, wanted)
    with caplog.at_level(logging.DEBUG, logger="dort_compare.rewrites"):
        assert ops(rewritten(before, CPU)) == ops(before)
    assert any(message.startswith("softmax") and not message.endswith("made") for message in caplog.messages)


class Attention(nn.Module):
    def __init__(self, causal: bool = False) -> None:
        super().__init__()
        self.causal = causal

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.causal)


def operands(dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    draw = torch.Generator().manual_seed(0)
    return tuple(torch.randn(2, 3, 8, 4, generator=draw).to(dtype) for _ in range(3))


def hidden_rows(shape: tuple[int, ...]) -> Tensor:
    """Half of the keys hidden by chance, and all from one query."""
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(1)) > 0.5
    mask[..., 3, :] = False
    return mask


MASKS: dict[str, Callable[[], Tensor]] = {
    "a mask": lambda: hidden_rows((8, 8)),
    "a mask a batch": lambda: hidden_rows((2, 1, 8, 8)),
    "a bias": lambda: torch.zeros(1, 3, 8, 8).masked_fill(~hidden_rows((1, 3, 8, 8)), -math.inf),
    "a bias of no hidden row": lambda: torch.randn(8, 8),
}


@every_pair(dtype=(torch.float32, torch.float64, torch.float16), mask=(None, "causal", *MASKS), dynamic=(False, True))
def test_attention_with(mask: str | None, dtype: torch.dtype, dynamic: bool, caplog: pytest.LogCaptureFixture) -> None:
    torch._dynamo.reset()
    inputs = operands(dtype)
    if mask in MASKS:
        bias = MASKS[str(mask)]()
        inputs = (*inputs, bias if bias.dtype == torch.bool else bias.to(dtype))
    module = Attention(causal=mask == "causal")
    with torch.no_grad(), caplog.at_level(logging.DEBUG, logger="dort_compare.rewrites"):
        found = torch.compile(module, backend="dort", dynamic=dynamic, options={"cache": False})(*inputs)
        close = {"rtol": 1e-2, "atol": 1e-3} if dtype == torch.float16 else {}  # torch multiplies in float16
        torch.testing.assert_close(found, module(*inputs), **close)
    assert "softmax at _scaled_dot_product_flash_attention_for_cpu: made" in caplog.messages


def test_a_bias_of_nan_stays_one() -> None:
    """ONNX Runtime's maximum of -inf and NaN, in that order, is -inf."""
    bias = torch.zeros(8, 8)
    bias[3], bias[3, 5] = -math.inf, math.nan
    with torch.no_grad():
        found = torch.compile(Attention(), backend="dort", options={"cache": False})(*operands(), bias)
    assert found[:, :, 3].isnan().all()
    assert not found[:, :, 4].isnan().any()


@pytest.mark.parametrize("mask", [None, "a mask a batch"], ids=str)
def test_the_comparison_finds_nothing_wrong_with_it(mask: str | None) -> None:
    inputs = (*operands(), MASKS[mask]()) if mask else operands()
    report = compare(Attention(), inputs, optimized=True, rewrites=True)
    assert report.verdict == "agree", report.causes
    assert report.optimized is not None
    assert any("Softmax" in op for row in report.optimized.rows for op in row.op_types)


def test_a_forgotten_mask_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = importlib.import_module("dort_compare.rewrites.rules.softmax")
    right = rule._replace
    monkeypatch.setattr(rule, "_replace", lambda *given: right(*given[:-1], None))
    report = compare(Attention(), (*operands(), MASKS["a mask"]()), optimized=True, rewrites=True)
    assert report.verdict == "diverge"
    assert "_scaled_dot_product_flash_attention_for_cpu" in report.causes[0].fx_node


def test_training_keeps_the_nodes_and_its_gradients_are_right() -> None:
    inputs = tuple(x.requires_grad_() for x in operands())
    backend = DebugBackend(rewrites=True)
    functions = (Attention(causal=True), torch.compile(Attention(causal=True), backend=backend))
    gradients = [torch.autograd.grad(function(*inputs).square().sum(), inputs) for function in functions]
    torch.testing.assert_close(gradients[1], gradients[0])
