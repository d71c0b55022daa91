"""Attention in blocks of queries: what a mask hides is not computed, and nothing else changes."""

from __future__ import annotations

import importlib
import logging
import math
from collections.abc import Callable, Iterator

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rules import CPU
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from dort_compare import compare
from dort_compare.rewrites import rewritten
from dort_compare.rewrites.graph import sizes_of

HEAD = importlib.import_module("dort_compare.rewrites.rules.by_head")
AGAIN = importlib.import_module("dort_compare.backends.recompute")
BLOCKS = importlib.import_module("dort_compare.rewrites.rules.blocks")
QUERIES, KEYS, WIDTH = 7, 6, 4
SIZES = {
    "q": (2, 3, QUERIES, WIDTH),
    "k": (2, 3, WIDTH, KEYS),
    "v": (2, 3, KEYS, WIDTH),
    "dy": (2, 3, QUERIES, WIDTH),
    "lse": (2, 3, QUERIES, 1),
    "given": (QUERIES, KEYS),
}
CAUSAL = np.tril(np.ones((QUERIES, KEYS), bool))
NEAR = CAUSAL & ~np.tril(CAUSAL, -3)
NEAR[-1, -1] = True


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for size in ("_LARGE", "_HUGE", "_TURN"):
            patch.setattr(HEAD, size, 1)
        patch.setattr(BLOCKS, "_QUERIES", 2)
        yield


def model(body: str, outputs: str, seen: np.ndarray, low: float = -np.inf) -> ir.Model:
    """A model in text form, of which ``seen`` and ``bias`` say what a query sees, and ``hidden`` what it does not."""
    inputs = ", ".join(f"float{[*size]} {name}" for name, size in SIZES.items())
    results = ", ".join(f"float{[*SIZES[name[1:]]]} {name}" for name in outputs.split())
    constants = "<int64[1] last = {-1}, float zero = {0.0}, float two = {2.0}, int64[1] head = {1}>"
    text = f'<ir_version: 10, opset_import: ["" : 20]> graph ({inputs}) => ({results}) {constants} {{ {body} }}'
    proto = onnx.parser.parse_model(text)
    bias = np.where(seen, 0, low).astype(np.float32)
    each = np.stack([seen, seen & (np.arange(QUERIES) != 3)[:, None]])[:, None]
    given = {"seen": seen, "hidden": ~seen, "each": each, "bias": bias, "low": np.float32(low)}
    for name, array in given.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


def values(of: ir.Model) -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    feeds = {name: draw.standard_normal(size, np.float32) for name, size in SIZES.items()}
    session = ort.InferenceSession(ir.to_proto(of).SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def scores_made(of: ir.Model) -> int:
    """Elements of all products with two axes of queries and keys, of one head."""
    (scan,) = (node for node in of.graph if node.op_type == "Scan")
    products = (node for node in scan.attributes["body"].as_graph() if node.name.startswith("scores"))
    return sum(math.prod(sizes_of(node.outputs[0]) or [0]) for node in products)


S = "[scores] s = MatMul(q, k) "
SOFTMAX = "p = Softmax<axis = -1>(m) yq = MatMul(p, v)"
APART = "h = ReduceMax(m, last) d = Sub(m, h) e = Exp(d) t = ReduceSum(e, last) p = Div(e, t) yq = MatMul(p, v)"
TURNED = "vt = Transpose<perm = [0, 1, 3, 2]>(v) pt = Transpose<perm = [0, 1, 3, 2]>(p) "
TURNED += "kt = Transpose<perm = [0, 1, 3, 2]>(k) "
GRADIENTS = f"d = Sub(m, lse) p = Exp(d) {TURNED} xv = MatMul(pt, dy) g = MatMul(dy, vt) c = Sub(g, lse) "
GRADIENTS += (
    "ds = Mul(p, c) n = Mul(ds, two) xq = MatMul(n, kt) qt = Transpose<perm = [0, 1, 3, 2]>(q) xk = MatMul(qt, n)"
)
FIRES = {
    "a bias": (f"{S} m = Add(s, bias) {SOFTMAX}", "yq"),
    "a bias first": (f"{S} m = Add(bias, s) {SOFTMAX}", "yq"),
    "what is seen": (f"{S} m = Where(seen, s, low) {SOFTMAX}", "yq"),
    "what is hidden": (f"{S} m = Where(hidden, low, s) {SOFTMAX}", "yq"),
    "a softmax apart": (f"{S} m = Add(s, bias) {APART}", "yq"),
    "gradients": (f"{S} m = Add(s, bias) {GRADIENTS}", "xq xk xv"),
    "zeros": (f"{S} m = Where(seen, s, zero) yq = MatMul(m, v)", "yq"),
    "what rows sum to": (
        f"{S} m = Where(seen, s, zero) t = ReduceSum(m, last) xlse = Neg(t) yq = MatMul(m, v)",
        "yq xlse",
    ),
}


@pytest.mark.parametrize("seen", [CAUSAL, NEAR], ids=["causal", "near"])
@pytest.mark.parametrize("low", [-np.inf, float(np.finfo(np.float32).min)], ids=["inf", "lowest"])
@pytest.mark.parametrize("case", FIRES)
def test_what_is_hidden_is_not_computed(case: str, low: float, seen: np.ndarray) -> None:
    body, outputs = FIRES[case]
    before = model(body, outputs, seen, low)
    after = rewritten(before, CPU)
    shown = [np.flatnonzero(seen[start : start + 2].any(axis=0)) for start in range(0, QUERIES, 2)]
    widths = [keys[-1] + 1 - keys[0] for keys in shown]
    assert scores_made(after) == 2 * sum(widths[:-1]) + widths[-1] < QUERIES * KEYS
    for got, expected in zip(values(after), values(before), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.floats(0, 1), st.sampled_from(sorted(FIRES)))
@settings(max_examples=60, deadline=None)
def test_masks_of_any_kind(seed: int, width: int, density: float, case: str) -> None:
    """Whether it cuts or not."""
    draw = np.random.default_rng(seed)
    seen = draw.random((QUERIES, KEYS)) < density
    seen[np.arange(QUERIES), draw.integers(0, KEYS, QUERIES)] = True
    body, outputs = FIRES[case]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BLOCKS, "_QUERIES", width)
        before = model(body, outputs, seen)
        after = rewritten(before, CPU)
    for got, expected in zip(values(after), values(before), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


BLIND = CAUSAL & (np.arange(QUERIES) > 0)[:, None]
STAYS = {
    "an input": (f"{S} m = Add(s, given) {SOFTMAX}", CAUSAL, "no mask that is always the same"),
    "nothing hidden": (f"{S} m = Add(s, bias) {SOFTMAX}", CAUSAL | True, "no mask that is always the same"),
    "a query that sees nothing": (f"{S} m = Add(s, bias) {SOFTMAX}", BLIND, "no mask that is always the same"),
    "an example whose query sees nothing": (f"{S} m = Where(each, s, low) {SOFTMAX}", CAUSAL,
                                            "no mask that is always the same"),
    "low numbers times zeros": (f"{S} m = Add(s, bias) p = Softmax<axis = -1>(m) n = Mul(p, m) yq = MatMul(n, v)",
                                CAUSAL, "MatMul joins"),
    "zeros by zeros": (f"{S} m = Add(s, bias) p = Softmax<axis = -1>(m) n = Div(p, p) yq = MatMul(n, v)", CAUSAL,
                       "MatMul joins"),
    "a mask that is given behind it": (f"{S} m = Add(s, bias) n = Add(m, given) p = Softmax<axis = -1>(n) "
                                       "yq = MatMul(p, v)", CAUSAL, "Softmax joins"),
    "a mask that is given before it": (f"{S} n = Add(s, given) m = Add(n, bias) p = Softmax<axis = -1>(m) "
                                       "yq = MatMul(p, v)", CAUSAL, "no mask that is always the same"),
    "a cast to bool": (f"{S} m = Add(s, bias) b = Cast<to = 9>(m) n = Cast<to = 1>(b) p = Softmax<axis = -1>(n) "
                       "yq = MatMul(p, v)", CAUSAL, "Softmax joins"),
    "low numbers less low numbers": (f"{S} m = Add(s, bias) n = Mul(m, two) d = Sub(m, n) p = Exp(d) yq = MatMul(p, v)",
                                     CAUSAL, "MatMul joins"),
    "little hidden": (f"{S} m = Add(s, bias) {SOFTMAX}", ~np.tril(CAUSAL, -5), "hides little"),
    "no softmax": (f"{S} m = Add(s, bias) e = Neg(m) yq = MatMul(e, v)", CAUSAL, "MatMul joins"),
    "a sum of what is hidden": (f"{S} m = Add(s, bias) t = ReduceSum(m, last) a = Sub(s, t) e = Exp(a) "
                                "yq = MatMul(e, v)", CAUSAL, "ReduceSum joins"),
    "a product that is not masked": (f"{S} m = Add(s, bias) p = Softmax<axis = -1>(m) n = Add(p, s) yq = MatMul(n, v)",
                                     CAUSAL, "MatMul joins"),
    "a softmax over queries": (f"{S} m = Add(s, bias) n = Transpose<perm = [0, 1, 3, 2]>(m) o = Softmax<axis = -1>(n) "
                               "p = Transpose<perm = [0, 1, 3, 2]>(o) yq = MatMul(p, v)", CAUSAL, "Softmax joins"),
    "a sum read in the same turn": (f"{S} m = Add(s, bias) p = Softmax<axis = -1>(m) {TURNED} w = MatMul(pt, dy) "
                                    "u = Add(w, v) yq = MatMul(p, u)", CAUSAL, "is read in the same turn"),
    "pairs of queries": (f"{S} m = Add(s, bias) p = Softmax<axis = -1>(m) {TURNED} r = MatMul(p, pt) "
                         "yq = MatMul(r, dy)", CAUSAL, "pairs of queries"),
    "an operation along other axes": (f"{S} m = Add(s, bias) p = Softmax<axis = -2>(m) yq = MatMul(p, v)",
                                      CAUSAL, "of Softmax it is not known"),
}  # fmt: skip


@pytest.mark.parametrize("case", STAYS)
def test_where_it_would_change_something_nothing_is_cut(case: str, caplog: pytest.LogCaptureFixture) -> None:
    body, seen, why = STAYS[case]
    before = model(body, "yq", seen, float(np.finfo(np.float32).min) if "given" in case else -np.inf)
    with caplog.at_level(logging.DEBUG, logger="dort_compare.rewrites"):
        after = rewritten(before, CPU)
    said = [message for message in caplog.messages if message.startswith("in_blocks")]
    assert len(said) == 1
    assert why in said[0]
    for got, expected in zip(values(after), values(before), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_a_bias_that_is_no_number_hides_nothing() -> None:
    before = model(f"{S} m = Add(s, bias) {SOFTMAX}", "yq", CAUSAL, np.nan)
    after = rewritten(before, CPU)
    assert scores_made(after) == QUERIES * KEYS
    np.testing.assert_array_equal(values(after), values(before))


def test_a_finite_bias_hides_nothing() -> None:
    before = model(f"{S} m = Add(s, bias) {SOFTMAX}", "yq", CAUSAL, -50.0)
    assert scores_made(rewritten(before, CPU)) == QUERIES * KEYS


def fused(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return scaled_dot_product_attention(query, key, value, is_causal=True)


def filled(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    hidden = query.new_ones(query.shape[2], key.shape[2], dtype=torch.bool).triu(1)
    return (query @ key.mT * 0.5).masked_fill(hidden, float("-inf")).softmax(-1) @ value


def chosen(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    seen = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool).tril()
    return torch.where(seen, query @ key.mT, torch.full([], torch.finfo(query.dtype).min)).softmax(-1) @ value


ATTENTION = pytest.mark.parametrize("attention", [fused, filled, chosen])


@ATTENTION
@pytest.mark.parametrize("length", [8, 11])
@pytest.mark.parametrize("is_same", [False, True], ids=["keys", "queries for keys"])
def test_attention_and_its_gradients(
    attention: Callable[..., Tensor],
    length: int,
    is_same: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(AGAIN, "_LARGE", 1)
    torch._dynamo.reset()
    torch.manual_seed(0)
    given = [torch.randn(2, 3, length, 4, requires_grad=True) for _ in range(3)]
    given[1] = given[0] if is_same else given[1]
    results = []
    with caplog.at_level(logging.DEBUG, logger="dort_compare.rewrites"):
        for each in (attention, torch.compile(attention, backend="dort", options={"cache": False})):
            output = each(*given)
            results.append([output, *torch.autograd.grad(output.square().sum(), given)])
    said = [message.rsplit(": ")[-1] for message in caplog.messages if message.startswith("in_blocks")]
    assert said == ["made", "made"]
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)


def test_a_batch_with_padding_in_front(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query among the padding sees nothing: torch takes the mean of all values, those behind it too."""
    monkeypatch.setattr(AGAIN, "_LARGE", 1)
    torch._dynamo.reset()
    torch.manual_seed(0)
    lowest = torch.finfo(torch.float32).min
    padding = torch.tensor([[lowest, lowest, lowest] + [0.0] * 5, [0.0] * 8])[:, None, None]

    def attention(query: Tensor, key: Tensor, value: Tensor, padding: Tensor) -> Tensor:
        causal = torch.full((8, 8), lowest).triu(1)
        return (query @ key.mT + padding + causal).softmax(-1) @ value

    given = [torch.randn(2, 3, 8, 4, requires_grad=True) for _ in range(3)]
    compiled = torch.compile(attention, backend="dort", options={"cache": False})
    outputs = [each(*given, padding) for each in (attention, compiled)]
    torch.testing.assert_close(outputs[1], outputs[0])
    gradients = [torch.autograd.grad(output.square().sum(), given) for output in outputs]
    torch.testing.assert_close(gradients[1], gradients[0])


class Attention(nn.Module):
    def __init__(self, attention: Callable[..., Tensor]) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return self.attention(query, key, value)


@ATTENTION
def test_the_comparison_finds_nothing_wrong_with_it(
    attention: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(AGAIN, "_LARGE", 1)
    torch.manual_seed(0)
    given = tuple(torch.randn(2, 3, 8, 4, requires_grad=True) for _ in range(3))
    with caplog.at_level(logging.DEBUG, logger="dort_compare.rewrites"):
        report = compare(Attention(attention), given, backward=True, optimized=True, rewrites=True)
    assert any(message.startswith("in_blocks") and message.endswith("made") for message in caplog.messages)
    assert report.verdict == "agree", report.causes
