"""Attention a head at a time: where it may be, where it may not, and what it computes."""

from __future__ import annotations

import importlib
import logging
import math

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

from dort_compare import compare
from dort_compare.rewrites import rewritten
from dort_compare.rewrites.graph import sizes_of

SIZES: dict[str, list[int | str]] = {
    "q": [2, 3, 6, 4],
    "k": [2, 3, 4, 5],
    "v": [2, 3, 5, 4],
    "given": [2, 3, 6, 5],
    "masks": [2, 1, 6, 5],
    "mask": [6, 5],
    "heads": [1, 3, 6, 5],
    "rows": [2, 3, 6],
    "other": [3, 6, 5],
    "none": [2, 3, 5, 0],
}
CONSTANTS = "<int64[1] last = {-1}, int64[1] head = {1}, int64[2] both = {0, 1}, float two = {2.0}>"
BODY = "s = MatMul(q, k) e = Exp(s) y = MatMul(e, v)"
OUTPUT = "float[2, 3, 6, 4] y"


def model(body: str, outputs: str = OUTPUT, **sizes: list[int | str]) -> ir.Model:
    """A model in text form, with the types of all values."""
    inputs = ", ".join(f"float{each} {name}".replace("'", "") for name, each in {**SIZES, **sizes}.items())
    text = f'<ir_version: 10, opset_import: ["" : 20]> graph ({inputs}) => ({outputs}) {CONSTANTS} {{ {body} }}'
    return ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))


def values(of: ir.Model) -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    feeds = {v.name: draw.standard_normal([2 if d == "n" else d for d in v.shape], np.float32) for v in of.graph.inputs}
    session = ort.InferenceSession(ir.to_proto(of).SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


RULE = importlib.import_module("dort_compare.rewrites.rules.by_head")


@pytest.fixture(params=["head", "example"])
def turn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a turn has the scores of, which are 30 or 64 elements a head and count as many."""
    monkeypatch.setattr(RULE, "_LARGE", 1)
    monkeypatch.setattr(RULE, "_HUGE", 1)
    monkeypatch.setattr(RULE, "_TURN", 1 if request.param == "head" else 65)
    return str(request.param)


SOFTMAX = "m = ReduceMax(s, last) d = Sub(s, m) e = Exp(d) t = ReduceSum(e, last) p = Div(e, t) y = MatMul(p, v)"
FIRES = {
    "products": BODY,
    "a softmax": f"s = MatMul(q, k) {SOFTMAX}",
    "a softmax of one node": "s = MatMul(q, k) p = Softmax<axis = -1>(s) y = MatMul(p, v)",
    "a mask of all": f"r = MatMul(q, k) s = Add(r, mask) {SOFTMAX}",
    "a mask an example": f"r = MatMul(q, k) s = Add(r, masks) {SOFTMAX}",
    "scores that are given": "r = MatMul(q, k) s = Mul(r, given) y = MatMul(s, v)",
    "numbers for rows": "s = MatMul(q, k) u = Unsqueeze(rows, last) e = Sub(s, u) y = MatMul(e, v)",
    "a constant": "r = MatMul(q, k) s = Mul(r, two) y = MatMul(s, v)",
    "what rows sum to": f"{BODY} t = ReduceSum(e, last) l = Squeeze(t, last)",
    "two results": f"{BODY} l = ReduceSum<keepdims = 0>(e, last)",
    "scores turned": "s = MatMul(q, k) t = Transpose<perm = [0, 1, 3, 2]>(s) y = MatMul(t, q)",
    "operands turned": "w = Transpose<perm = [0, 1, 3, 2]>(v) s = MatMul(q, w) y = MatMul(s, v)",
    "twice": f"{BODY} z = Transpose<perm = [0, 1, 3, 2]>(y) f = MatMul(q, z) g = Exp(f) l = MatMul(g, q)",
}
RESULTS = {
    "what rows sum to": f"{OUTPUT}, float[2, 3, 6] l",
    "two results": f"{OUTPUT}, float[2, 3, 6] l",
    "scores turned": "float[2, 3, 5, 4] y",
    "twice": f"{OUTPUT}, float[2, 3, 6, 4] l",
}


@pytest.mark.parametrize("case", FIRES)
def test_it_computes_what_the_nodes_compute(case: str, turn: str) -> None:
    before = model(FIRES[case], RESULTS.get(case, OUTPUT))
    after = rewritten(before, CPU)
    scans = [node for node in after.graph if node.op_type == "Scan"]
    assert len(scans) == (2 if case == "twice" else 1)
    stack = sizes_of(scans[0].inputs[0]) or []
    assert stack[0] == (6 if turn == "head" and case != "a mask an example" else 2)
    for value in (value for node in after.graph for value in node.outputs if case != "scores that are given"):
        assert math.prod(sizes_of(value) or [0]) < math.prod([2, 3, 6, 5]), f"{value.name} is whole"
    for got, expected in zip(values(after), values(before), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


STAYS = {
    "heads are joined": "s = MatMul(q, k) e = ReduceSum(s, head) y = MatMul(e, v)",
    "a softmax over heads": "s = MatMul(q, k) e = Softmax<axis = 1>(s) y = MatMul(e, v)",
    "heads change places": "s = MatMul(q, k) e = Transpose<perm = [1, 0, 2, 3]>(s) y = MatMul(e, v)",
    "scores are returned": "s = MatMul(q, k) y = MatMul(s, v)",
    "scores are read elsewhere": f"{BODY} l = Reshape(e, last)",
    "a bias a head": "r = MatMul(q, k) s = Add(r, heads) y = MatMul(s, v)",
    "a mask of three axes": "r = MatMul(q, k) s = Add(r, other) y = MatMul(s, v)",
    "an operation that is not known": "r = MatMul(q, k) s = CumSum(r, head) y = MatMul(s, v)",
    "a way round": "s = MatMul(q, k) t = ReduceSum(s, last) u = ReduceSum(t, head) e = Mul(s, u) y = MatMul(e, v)",
    "no elements": f"{BODY} l = MatMul(e, none)",
    "sizes that are not known": BODY,
}


@pytest.mark.parametrize("case", STAYS)
def test_where_heads_have_to_do_with_one_another_nothing_happens(
    case: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for size in ("_LARGE", "_HUGE", "_TURN"):
        monkeypatch.setattr(RULE, size, 1)
    outputs = {
        "heads change places": "float[3, 2, 6, 4] y",
        "scores are returned": f"{OUTPUT}, float[2, 3, 6, 5] s",
        "no elements": f"{OUTPUT}, float[2, 3, 6, 0] l",
        "scores are read elsewhere": f"{OUTPUT}, float[180] l",
    }
    sizes = {
        "sizes that are not known": {name: ["n", *SIZES[name][1:]] for name in "qkv"},
        "heads change places": {"v": [3, 2, 5, 4]},
    }
    output = "float[n, 3, 6, 4] y" if case == "sizes that are not known" else outputs.get(case, OUTPUT)
    before = model(STAYS[case], output, **sizes.get(case, {}))
    with caplog.at_level(logging.DEBUG, logger="dort_compare.rewrites"):
        assert ops(rewritten(before, CPU)) == ops(before)
    assert any(message.startswith("by_head") and not message.endswith("made") for message in caplog.messages)


def test_what_a_scan_reads_whole_closes_no_circle(turn: str) -> None:
    """The first product's Scan reads a number that comes of the second's scores, and gives what these are multiplied
    with."""
    body = (
        "s = MatMul(q, k) x = MatMul(q, w) e = Exp(x) t = ReduceSum(e, last) m = ReduceMean(t, both) a = Add(s, m) "
        "f = Exp(a) g = Transpose<perm = [0, 1, 3, 2]>(f) z = MatMul(g, q) y = MatMul(e, z)"
    )
    before = model(body, w=[2, 3, 4, 5])
    after = rewritten(before, CPU)
    assert ops(after).count("Scan") == 1
    np.testing.assert_allclose(values(after)[0], values(before)[0], rtol=1e-4)


def test_what_reads_a_result_among_the_nodes_stands_behind_the_scan(turn: str) -> None:
    """The next Scan looks for its nodes by their places, before the graph is sorted."""
    body = "s = MatMul(q, k) e = Exp(s) t = ReduceSum(e, last) n = ReduceMean(t, both) l = Neg(n) y = MatMul(e, v)"
    graph = model(body, f"{OUTPUT}, float[1, 1, 6, 1] l")
    product = next(node for node in graph.graph if node.op_type == "MatMul")
    assert RULE.by_head(graph, product) is None
    found = [*graph.graph]
    assert ops(graph).count("Scan") == 1
    for i, node in enumerate(found):
        assert {*node.predecessors()} <= {*found[:i]}, f"{node.name} stands before what it reads"


def test_a_transpose_that_does_not_say_what_it_turns_is_left(turn: str) -> None:
    sizes = {"q": [3, 3, 3, 2], "k": [3, 3, 2, 3], "v": [3, 3, 3, 2]}
    before = model("s = MatMul(q, k) e = Transpose(s) y = MatMul(e, v)", "float[3, 3, 3, 2] y", **sizes)  # type: ignore[arg-type]
    assert ops(rewritten(before, CPU)) == ops(before)


@pytest.mark.parametrize("size", ["_LARGE", "_HUGE", "_TURN"])
def test_few_elements_stay_together(size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for each in ("_LARGE", "_HUGE", "_TURN"):
        monkeypatch.setattr(RULE, each, 181 if each == size else 1)
    assert ops(rewritten(model(BODY), CPU)) == ops(model(BODY))


def test_three_values_of_the_size_of_the_scores_need_not_be_huge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RULE, "_LARGE", 1)
    monkeypatch.setattr(RULE, "_TURN", 1)
    body = "s = MatMul(q, k) e = Exp(s) f = Exp(e) y = MatMul(f, v)"
    assert "Scan" in ops(rewritten(model(body), CPU))


class Attention(nn.Module):
    def __init__(self, causal: bool = False) -> None:
        super().__init__()
        self.causal = causal

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        groups = q.shape[1] != k.shape[1]
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.causal, enable_gqa=groups)


def hidden(*sizes: int) -> Tensor:
    """Half of the keys hidden by chance, and all from one query."""
    mask = torch.rand(sizes, generator=torch.Generator().manual_seed(1)) > 0.5
    mask[..., 3, :] = False
    return mask


MASKS = {
    "none": None,
    "causal": None,
    "of all": (8, 8),
    "of all, with four axes": (1, 1, 8, 8),
    "an example": (2, 1, 8, 8),
    "a head": (2, 4, 8, 8),
}


def operands(heads: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    draw = torch.Generator().manual_seed(0)
    kept = [torch.randn(2, each, 8, 4, generator=draw).to(dtype) for each in (4, heads, heads)]
    return tuple(each.requires_grad_() for each in kept)


@every_pair(mask=MASKS, heads=(4, 2), dtype=(torch.float32, torch.float16))
def test_attention_and_its_gradient(
    mask: str, heads: int, dtype: torch.dtype, turn: str, caplog: pytest.LogCaptureFixture
) -> None:
    torch._dynamo.reset()
    sizes = MASKS[mask]
    inputs = (*operands(heads, dtype), *([hidden(*sizes)] if sizes else []))
    module = Attention(causal=mask == "causal")
    with caplog.at_level(logging.DEBUG, logger="dort_compare.rewrites"):
        found = torch.compile(module, backend="dort", options={"cache": False})(*inputs)
        upstream = torch.randn(found.shape, generator=torch.Generator().manual_seed(2)).to(dtype)
        got = torch.autograd.grad(found, inputs[:3], upstream)
    right = module(*inputs)
    close = {"rtol": 1e-2, "atol": 4e-3} if dtype == torch.float16 else {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(found, right, **close)
    for one, other in zip(got, torch.autograd.grad(right, inputs[:3], upstream), strict=True):
        torch.testing.assert_close(one, other, **close)
    for phase in ("", "_backward"):
        assert f"by_head at _scaled_dot_product_flash_attention_for_cpu{phase}: made" in caplog.messages


@pytest.mark.parametrize("mask", ["none", "an example"])
def test_the_comparison_finds_nothing_wrong_with_it(mask: str, turn: str) -> None:
    sizes = MASKS[mask]
    inputs = (*operands(4), *([hidden(*sizes)] if sizes else []))
    report = compare(Attention(), inputs, backward=True, optimized=True, rewrites=True)
    assert report.verdict == "agree", report.causes
    assert report.optimized is not None
    assert any("Scan" in op for row in report.optimized.rows for op in row.op_types)


def test_a_head_that_takes_anothers_part_is_found(turn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = importlib.import_module("dort_compare.rewrites.scan")
    right = scan.Scan._body

    def crossed(self: object, operands: list[ir.Value], results: list[ir.Value]) -> ir.Graph:
        body = right(self, operands, results)
        one, other = body.inputs[:2]
        other.replace_all_uses_with(one)
        return body

    monkeypatch.setattr(scan.Scan, "_body", crossed)
    report = compare(Attention(), operands(4), optimized=True, rewrites=True)
    assert report.verdict == "diverge"
    assert "Scan" in str(report)
