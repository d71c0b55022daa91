"""By how many unit roundoffs matrix products err, by the number of terms that they add up.

    python benchmarks/roundoffs.py --write benchmarks/results/roundoffs.md

Every line is a float32 product whose elements are sums of so many terms, by ONNX Runtime and by torch, on the CPU: of
terms that all are equal, and of random ones between 0 and 1, the worst of several matrices each. An error is the
largest distance from the product in float64, over the largest element, in unit roundoffs of float32 (2^-24). Kernels
that add one term after another err most where all are equal: every rounding goes the same way.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnxruntime as ort
import torch
from long_sums import session
from pages import page, show

TERMS = [2**power for power in range(4, 16)]
M, N = 48, 64
FACTORS = (0.1, 0.3, 0.7, 1 / 3)
COLUMNS = ("terms", "equal, ONNX Runtime", "equal, torch", "random, ONNX Runtime", "random, torch")


def product(terms: int) -> ort.InferenceSession:
    """A model of one MatMul."""
    return session(
        onnx.parser.parse_model(
            f'<ir_version: 10, opset_import: ["" : 18]> g (float[{M}, {terms}] x, float[{terms}, {N}] y) '
            f"=> (float[{M}, {N}] z) {{ z = MatMul(x, y) }}"
        )
    )


def roundoffs(got: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> float:
    """How far a product lies from that in float64."""
    exact = x.double() @ y.double()
    return float((got.double() - exact).abs().max() / exact.abs().max() * 2**24)


def operands(terms: int) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Pairs of matrices, with what their terms are."""
    generator = torch.Generator().manual_seed(0)
    for factor in FACTORS:
        yield "equal", torch.full((M, terms), factor), torch.full((terms, N), 1 - factor)
        yield "random", *(torch.rand(shape, generator=generator) for shape in ((M, terms), (terms, N)))


def rows() -> Iterator[list[str]]:
    """A line for every number of terms."""
    for terms in TERMS:
        by_ort = product(terms)
        worst: dict[str, float] = {}
        for kind, x, y in operands(terms):
            (found,) = by_ort.run(None, {"x": x.numpy(), "y": y.numpy()})
            for who, got in (("ONNX Runtime", torch.from_numpy(found)), ("torch", x @ y)):
                key = f"{kind}, {who}"
                worst[key] = max(worst.get(key, 0.0), roundoffs(got, x, y))
        yield [str(terms), *(f"{worst[name]:.1f}" for name in COLUMNS[1:])]


def main() -> None:
    """Measures every number of terms."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="file for the table, beside the screen")
    options = parser.parse_args()
    show(page("Roundoffs of products", __doc__ or "", ("torch", "onnxruntime-gpu"), COLUMNS, rows()), options.write)


if __name__ == "__main__":
    main()
