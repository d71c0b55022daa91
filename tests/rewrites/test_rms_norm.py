"""Root mean square normalization in one kernel: where it may be, where it may not, and what it computes."""

from __future__ import annotations

import importlib
import logging

import onnx
import onnx_ir as ir
import pytest
import torch
from rules import CPU, ops
from torch import Tensor, nn

from dort_compare import compare, provenance
from dort_compare.models import LlamaConfig, build
from dort_compare.rewrites import rewritten
from dort_compare.runtime.providers import SessionSettings
from dort_compare.runtime.session import make_session

KERNEL = "SimplifiedLayerNormalization"
CONSTANTS = "<float eps = {1e-5}, int64[1] last = {-1}, int64[1] two = {2}, int64[1] one = {1}, int64[2] both = {1, 2}>"
SQUARE = "s = Mul(x, x)"
ROOT = "v = Add(m, eps) q = Sqrt(v) r = Reciprocal(q)"
MEAN = "m = ReduceMean(s, last)"
WHOLE = f"{SQUARE} {MEAN} {ROOT} n = Mul(x, r) y = Mul(n, w)"


def model(body: str, outputs: str = "float[2, 3, 8] y", weight: str = "float[8] w", dtype: str = "float") -> ir.Model:
    """A model in text form, with the types of all values."""
    head = f'<ir_version: 10, opset_import: ["" : 20]> graph (float[2, 3, 8] x, {weight}) => ({outputs}) {CONSTANTS}'
    text = f"{head} {{ {body} }}".replace("float", dtype)
    if dtype == "float16":
        text = text.replace("1e-5", "168")  # its bits
    return ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))


def values(of: ir.Model, x: Tensor) -> list[Tensor]:
    feeds = {"x": x, "w": torch.linspace(-1, 2, x.shape[-1], dtype=x.dtype)}
    session = make_session(of, SessionSettings(), [("CPUExecutionProvider", {})])
    return session.run(feeds, {str(value.name): torch.device("cpu") for value in of.graph.outputs})


FIRES = {
    "as torch writes it": (WHOLE, "float[2, 3, 8] y", [KERNEL]),
    "the weight first": (WHOLE.replace("Mul(n, w)", "Mul(w, n)"), "float[2, 3, 8] y", [KERNEL]),
    "the root first": (WHOLE.replace("Mul(x, r)", "Mul(r, x)"), "float[2, 3, 8] y", [KERNEL]),
    "the constant first": (WHOLE.replace("Add(m, eps)", "Add(eps, m)"), "float[2, 3, 8] y", [KERNEL]),
    "the axis counted from the front": (WHOLE.replace("last", "two"), "float[2, 3, 8] y", [KERNEL]),
    "the root is an output": (WHOLE, "float[2, 3, 8] y, float[2, 3, 1] r", [KERNEL]),
    "the root is read before the end": (
        WHOLE.replace("n = Mul", "z = Neg(r) n = Mul"),
        "float[2, 3, 8] y, float[2, 3, 1] z",
        [KERNEL, "Neg"],
    ),
    "two in a row": (
        f"{WHOLE} s2 = Mul(y, y) m2 = ReduceMean(s2, last) v2 = Add(m2, eps) q2 = Sqrt(v2) r2 = Reciprocal(q2) "
        "n2 = Mul(y, r2) Y = Mul(n2, w)",
        "float[2, 3, 8] Y",
        [KERNEL, KERNEL],
    ),
}
STAYS = {
    "no squares": (WHOLE.replace("Mul(x, x)", "Mul(x, w)"), "float[2, 3, 8] y"),
    "the squares are read": (f"{WHOLE} z = Neg(s)", "float[2, 3, 8] y, float[2, 3, 8] z"),
    "the mean is an output": (WHOLE, "float[2, 3, 8] y, float[2, 3, 1] m"),
    "another axis": (WHOLE.replace("last", "one"), "float[2, 3, 8] y"),
    "two axes": (WHOLE.replace("last", "both"), "float[2, 3, 8] y"),
    "nothing constant is added": (WHOLE.replace("Add(m, eps)", "Add(m, m)"), "float[2, 3, 8] y"),
    "no root": (WHOLE.replace("Sqrt", "Exp"), "float[2, 3, 8] y"),
    "no reciprocal": (WHOLE.replace("Reciprocal", "Neg"), "float[2, 3, 8] y"),
    "another value is normalized": (WHOLE.replace("Mul(x, r)", "Mul(w, r)"), "float[2, 3, 8] y"),
    "the normalized values are an output": (WHOLE, "float[2, 3, 8] y, float[2, 3, 8] n"),
    "no weight": (WHOLE.replace("Mul(n, w)", "Neg(n)"), "float[2, 3, 8] y"),
    "its own weight": (WHOLE.replace("Mul(n, w)", "Mul(n, n)"), "float[2, 3, 8] y"),
}


@pytest.mark.parametrize("case", FIRES)
@pytest.mark.parametrize("size", [1e-20, 1.0, 1e25], ids=str)
def test_what_is_computed_stays(case: str, size: float) -> None:
    body, outputs, expected = FIRES[case]
    before = model(body, outputs)
    after = rewritten(before, CPU)
    assert ops(after) == expected
    assert [value.name for value in after.graph.outputs] == [value.name for value in before.graph.outputs]
    x = size * torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0))
    for one, other in zip(values(before, x), values(after, x), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=0)


@pytest.mark.parametrize("case", STAYS)
def test_where_a_value_would_be_missed_or_another_meant_nothing_happens(
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = model(*STAYS[case])
    with caplog.at_level(logging.DEBUG, logger="dort_compare.rewrites"):
        assert ops(rewritten(before, CPU)) == ops(before)
    assert any(message.startswith("rms_norm") and not message.endswith("made") for message in caplog.messages)


@pytest.mark.parametrize("weight", ["float[1] w", "float[3, 8] w"])
def test_a_weight_of_another_shape_stays(weight: str) -> None:
    before = model(WHOLE, weight=weight)
    assert ops(rewritten(before, CPU)) == ops(before)


@pytest.mark.parametrize("dtype", ["double", "float16"])
def test_other_dtypes_stay(dtype: str) -> None:
    before = model(WHOLE, dtype=dtype)
    assert ops(rewritten(before, CPU)) == ops(before)


class Norm(nn.Module):
    """As Llama has it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(8))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


@pytest.mark.parametrize("shape", [(2, 8), (3, 1, 8), (0, 8)], ids=str)
@pytest.mark.parametrize("dynamic", [False, True])
def test_trained_through(shape: tuple[int, ...], dynamic: bool) -> None:
    module, x = Norm(), torch.randn(shape, requires_grad=True)
    expected = module(x)
    gradients = torch.autograd.grad(expected.square().sum(), [x, module.weight])
    torch._dynamo.reset()
    found = torch.compile(module, backend="dort", dynamic=dynamic)(x)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found.square().sum(), [x, module.weight]), gradients)


@pytest.mark.parametrize("backward", [False, True])
def test_the_comparison_finds_nothing_wrong_with_it(backward: bool) -> None:
    module, inputs = build("decoder", LlamaConfig(hidden=32, heads=4, intermediate=48, vocabulary=50), batch=2, seq=16)
    report = compare(module, inputs, backward=backward, optimized=True, rewrites=True)
    assert report.verdict == "agree", report.causes
    assert report.optimized is not None
    fused = {
        row.fused: row.status for row in report.optimized.rows if any("SimplifiedLayer" in o for o in row.op_types)
    }
    assert {"pow_1", "mean", "add", "rsqrt", "mul", "mul_1"} in [set(names) for names in fused]
    assert set(fused.values()) == {"ok"}


def test_the_nodes_that_went_into_it_are_named() -> None:
    before = model(WHOLE)
    for node in before.graph:
        node.metadata_props[provenance.FX_NODE] = str(node.outputs[0].name)
    (node,) = rewritten(before, CPU).graph
    assert node.metadata_props[provenance.FX_NODE] == "s m v q r n y"


def test_a_wrong_epsilon_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = importlib.import_module("dort_compare.rewrites.rules.rms_norm")
    right = rule._replace
    monkeypatch.setattr(rule, "_replace", lambda *given: right(*given[:-1], given[-1] + 1e-2))
    report = compare(Norm(), (torch.randn(4, 8),), optimized=True, rewrites=True)
    assert report.verdict == "diverge"
    assert KERNEL in report.causes[0].reason
