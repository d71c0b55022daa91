"""What the gradient of a linear layer's weight takes: its product reading the other gradient by columns, after that is
transposed once, and in torch.

    python benchmarks/weight_gradients.py --write benchmarks/results/weight-gradients.md

Every line is ``gradient.T @ x``, float32, for as many tokens: as ONNX Runtime makes one product of it, with the
transposition apart, and by torch; the three take turns on the CPU, after their values have been held against float64.
*Rewritten* says whether the fast backend takes it apart. A ratio is the median of the ratios within a round.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial

import onnx
import onnx_ir as ir
import onnxruntime as ort
import torch
from pages import flags, page, show
from sessions import session
from turns import milliseconds, ratio, timed

from dort_compare.rewrites import rewritten

ROUNDS, ROUND_SECONDS, TOLERANCE = 25, 0.02, 1e-5
COLUMNS = ("tokens", "to", "from", "rewritten", "one product, ms", "transposed once, ms", "torch, ms",
           "one product / transposed once", "torch / transposed once")  # fmt: skip
SIZES = (
    (64, 256, 256),
    (512, 512, 512),
    (1024, 768, 768),
    (1024, 3072, 768),
    (1024, 768, 3072),
    (1024, 4000, 768),
    (2048, 1536, 512),
    (2048, 512, 1536),
    (1024, 1024, 64),
    (64, 4096, 1024),
)
HEAD = '<ir_version: 10, opset_import: ["" : 20]>'
ONE = "t = Transpose <perm = [1, 0]> (g) y = MatMul(t, x)"
APART = "v = Reshape(g, matrices) t = Transpose <perm = [0, 2, 1]> (v) m = Reshape(t, matrix) y = MatMul(m, x)"


def model(body: str, tokens: int, to: int, of: int) -> onnx.ModelProto:
    """The product in ONNX's text form, with the types of all values."""
    constants = f"<int64[3] matrices = {{1, {tokens}, {to}}}, int64[2] matrix = {{{to}, {tokens}}}>"
    graph = f"graph (float[{tokens}, {to}] g, float[{tokens}, {of}] x) => (float[{to}, {of}] y) {constants}"
    return onnx.shape_inference.infer_shapes(onnx.parser.parse_model(f"{HEAD} {graph} {{ {body} }}"))


def is_rewritten(of: onnx.ModelProto) -> bool:
    """Whether the fast backend's rules change a model."""
    after = rewritten(ir.from_proto(of), [("CPUExecutionProvider", {})])
    return [node.op_type for node in after.graph] != [node.op_type for node in of.graph.node]


def run(of: ort.InferenceSession, gradient: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The product by a session."""
    return torch.from_numpy(of.run(None, {"g": gradient.numpy(), "x": x.numpy()})[0])


def rows(threads: int) -> Iterator[list[str]]:
    """A line for every size."""
    for tokens, to, of in SIZES:
        generator = torch.Generator().manual_seed(0)
        gradient, x = (torch.randn(tokens, width, generator=generator) for width in (to, of))
        ways = {
            name: partial(run, session(model(body, tokens, to, of), threads), gradient, x)
            for name, body in (("one", ONE), ("apart", APART))
        } | {"torch": partial(torch.mm, gradient.T, x)}
        exact = gradient.T.double() @ x.double()
        for name, way in ways.items():
            if not (way() - exact).abs().max() <= TOLERANCE * exact.abs().max():
                raise SystemExit(f"{tokens} x {to} x {of}: {name} is further from float64 than {TOLERANCE}")
        times = timed(ways, ROUNDS, ROUND_SECONDS)
        yield [
            *map(str, (tokens, to, of)),
            "yes" if is_rewritten(model(ONE, tokens, to, of)) else "no",
            *(milliseconds(times[name]) for name in ways),
            *(f"{ratio(times, name, 'apart'):.2f}" for name in ("one", "torch")),
        ]


def main() -> None:
    """Measures every size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, parents=[flags()]
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    title = f"Gradients of weights, CPU, {options.threads} threads"
    packages = ("torch", "onnxruntime-gpu")
    show(page(title, __doc__ or "", packages, COLUMNS, rows(options.threads)), options.write)


if __name__ == "__main__":
    main()
