"""Whether ONNX Runtime's fused kernels beat the nodes that they would take the place of.

    python benchmarks/fused_kernels.py --write benchmarks/results/fused-kernels.md

Every line is one small model each way, on the same random float32 tensors, in two sessions that take turns; its ratio
is the median of the ratios within a round. What the two compute is compared before it is timed. *Nodes* is what the
fast backend's graphs hold. A rewrite pays where the ratio is well above 1 and the nodes take their share of a step.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx
import onnxruntime as ort
from pages import flags, page, show
from sessions import session
from turns import Times, milliseconds, ratio, timed

ROUNDS, ROUND_SECONDS, TOLERANCE = 15, 0.02, 1e-5
HEADER = '<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]>'


@dataclass(frozen=True)
class Case:
    """Bodies of models in ONNX's text form that compute ``y`` of the same inputs; ``{b}`` and ``{s}`` are filled in."""

    what: str
    inputs: str
    output: str
    nodes: str
    fused: dict[str, str]
    constants: str = ""


NORM = Case(
    "root mean square normalization",
    "float[{b}, {s}, 512] x, float[512] w",
    "float[{b}, {s}, 512] y",
    "q = Mul(x, x) m = ReduceMean(q, last) v = Add(m, eps) d = Sqrt(v) r = Reciprocal(d) n = Mul(x, r) y = Mul(n, w)",
    {
        "SimplifiedLayerNormalization": "y = SimplifiedLayerNormalization <axis = -1, epsilon = 1e-6> (x, w)",
        "RMSNormalization": "y = RMSNormalization <axis = -1, epsilon = 1e-6> (x, w)",
    },
    "float eps = {1e-6}, int64[1] last = {-1}",
)
ROTARY = Case(
    "rotary embedding",
    "float[{b}, 8, {s}, 64] x, float[{s}, 32] angle, int64[{b}, {s}] position",
    "float[{b}, 8, {s}, 64] y",
    "both = Concat <axis = 1> (angle, angle) c = Cos(both) i = Sin(both) f, l = Split <axis = 3, num_outputs = 2> (x) "
    "g = Neg(l) h = Concat <axis = 3> (g, f) p = Mul(x, c) t = Mul(h, i) y = Add(p, t)",
    {
        "RotaryEmbedding": "c = Cos(angle) i = Sin(angle) y = RotaryEmbedding (x, c, i, position)",
        "com.microsoft RotaryEmbedding": (
            "c = Cos(angle) i = Sin(angle) y = com.microsoft.RotaryEmbedding (x, position, c, i)"
        ),
    },
)
ATTENTION = Case(
    "attention with a causal mask",
    "float[{b}, 8, {s}, 64] q, float[{b}, 8, {s}, 64] k, float[{b}, 8, {s}, 64] v, float[1, 1, {s}, {s}] mask",
    "float[{b}, 8, {s}, 64] y",
    "t = Transpose <perm = [0, 1, 3, 2]> (k) p = com.microsoft.FusedMatMul <alpha = 0.125> (q, t) m = Add(p, mask) "
    "o = Softmax(m) y = MatMul(o, v)",
    {
        "Attention": "y = Attention <scale = 0.125> (q, k, v, mask)",
        "Attention, causal": "y = Attention <scale = 0.125, is_causal = 1> (q, k, v)",
        "com.microsoft MultiHeadAttention": (
            "a = Transpose <perm = [0, 2, 1, 3]> (q) A = Reshape(a, flat) h = "
            "com.microsoft.MultiHeadAttention <num_heads = 8, scale = 0.125> (A, k, v, , , mask) "
            "H = Reshape(h, split) y = Transpose <perm = [0, 2, 1, 3]> (H)"
        ),
    },
    "int64[3] flat = {0, 0, -1}, int64[4] split = {0, 0, 8, 64}",
)
_WEIGHTS = (
    "h = ReduceMax <keepdims = 1> (x, last) e = Equal(h, low) f = Where(e, zero, h) d = Sub(x, f) w = Exp(d) "
    "t = ReduceSum <keepdims = 1> (w, last) g = Equal(t, zero) n = Where(g, one, t) y = Div(w, n)"
)
_NUMBERS = "float low = {-3.4e38}, float zero = {0}, float one = {1}, int64[1] last = {-1}"
SOFTMAX = Case(
    "softmax of torch's fused attention, inference",
    "float[{b}, 8, {s}, {s}] x",
    "float[{b}, 8, {s}, {s}] y",
    _WEIGHTS,
    {"Softmax": "y = Softmax <axis = -1> (x)"},
    _NUMBERS,
)
SOFTMAX_TRAINED = Case(
    "softmax of torch's fused attention, training: with the logarithm of the sum",
    "float[{b}, 8, {s}, {s}] x",
    "float[{b}, 8, {s}, {s}] y, float[{b}, 8, {s}, 1] l",
    f"{_WEIGHTS} r = Log(t) l = Add(r, f)",
    {
        "Softmax": (
            "y = Softmax <axis = -1> (x) h = ReduceMax <keepdims = 1> (x, last) "
            "m = ReduceMax <keepdims = 1> (y, last) r = Log(m) l = Sub(h, r)"
        )
    },
    _NUMBERS,
)
ROW = Case(
    "a number a row, taken from scores",
    "float[{b}, 8, {s}, 64] q, float[{b}, 8, 64, {s}] k, float[{b}, 8, {s}, 1] r",
    "float[{b}, 8, {s}, {s}] y",
    "p = MatMul(q, k) y = Sub(p, r)",
    {
        "MatMul with one more term": (
            "z = Shape <start = 0, end = 2> (k) w = Shape <start = 3> (k) e = Concat <axis = 0> (z, one, w) "
            "c = ConstantOfShape <value = float[1] {-1}> (e) a = Concat <axis = -1> (q, r) "
            "b = Concat <axis = -2> (k, c) y = MatMul(a, b)"
        )
    },
    "int64[1] one = {1}",
)
CASES = (NORM, ROTARY, ATTENTION, SOFTMAX, SOFTMAX_TRAINED, ROW)


def model_of(case: Case, body: str, size: dict[str, int]) -> onnx.ModelProto:
    """The model of one way to compute a case."""
    graph = f"graph ({case.inputs}) => ({case.output})".format(**size)
    constants = f"<{case.constants}>" if case.constants else ""
    return onnx.parser.parse_model(f"{HEADER} {graph} {constants} {{ {body} }}")


def feeds_of(plain: ort.InferenceSession) -> dict[str, np.ndarray]:
    """Random numbers; positions that count, and a mask that hides what comes later."""
    generator = np.random.default_rng(0)
    feeds = {
        i.name: generator.standard_normal(i.shape, dtype=np.float32) for i in plain.get_inputs() if "float" in i.type
    }
    for given in plain.get_inputs():
        if given.name == "position":
            feeds["position"] = np.broadcast_to(np.arange(given.shape[1]), given.shape).copy()
        if given.name == "mask":
            feeds["mask"] = np.triu(np.full(given.shape, -np.inf, dtype=np.float32), 1)
    return feeds


def seconds_of(ways: dict[str, ort.InferenceSession], feeds: dict[str, np.ndarray]) -> Times:
    """Seconds of a run by way. Ends the program where two ways disagree."""
    given = {way: {i.name: feeds[i.name] for i in each.get_inputs()} for way, each in ways.items()}
    expected = ways["nodes"].run(None, given["nodes"])
    for way, each in ways.items():
        for value, right in zip(each.run(None, given[way]), expected, strict=True):
            if not np.allclose(value, right, atol=TOLERANCE * np.abs(right).max()):
                raise SystemExit(f"{way} computes something else")
    return timed({way: partial(each.run, None, given[way]) for way, each in ways.items()}, ROUNDS, ROUND_SECONDS)


def rows(sizes: list[str], threads: int) -> Iterator[list[str]]:
    """A line for every case, size and fused kernel."""
    for case in CASES:
        for size in sizes:
            b, s = map(int, size.split("x"))
            bodies = {"nodes": case.nodes, **case.fused}
            ways = {way: session(model_of(case, body, {"b": b, "s": s}), threads) for way, body in bodies.items()}
            times = seconds_of(ways, feeds_of(ways["nodes"]))
            for way in case.fused:
                millis = (milliseconds(times[each]) for each in ("nodes", way))
                yield [case.what, f"({b}, {s})", way, *millis, f"{ratio(times, 'nodes', way):.2f}"]


def main() -> None:
    """Measures every case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, parents=[flags()]
    )
    parser.add_argument("--sizes", nargs="+", default=["2x1024", "1x8"], metavar="BATCHxSEQ")
    options = parser.parse_args()
    columns = ("what", "size", "kernel", "nodes, ms", "kernel, ms", "nodes / kernel")
    title = f"Fused kernels of ONNX Runtime, CPU, {options.threads} threads"
    found = rows(options.sizes, options.threads)
    show(page(title, __doc__ or "", ("onnxruntime-gpu",), columns, found), options.write)


if __name__ == "__main__":
    main()
