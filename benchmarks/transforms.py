"""What a Fourier transform costs and errs in ONNX Runtime: by its own operator, and as it is lowered here.

    python benchmarks/transforms.py --write benchmarks/results/transforms.md

Every line is a complex transform, forward and in float32, of 64 rows of random numbers, by ONNX's DFT in ONNX Runtime,
by it as it is lowered here, as products with matrices, and by torch; the three take turns on the CPU. *Error* is the
largest distance from numpy's transform in extended precision, over its largest element, in units of the last place of
1; *inverse* is that of the inverse transform in float64. A ratio of times is the median of the ratios within a round.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import onnx
import onnx_ir as ir
import torch
from pages import flags, page, show
from sessions import result, session
from torch.fx.experimental.proxy_tensor import make_fx
from turns import milliseconds, ratio, timed

from dort_compare.lowering import lower

ROUNDS, ROUND_SECONDS, BATCH = 15, 0.02, 64
LENGTHS = (8, 12, 64, 100, 128, 400, 512, 1000, 1009, 1024, 3000, 4096, 16384)
ELEMENTS = {torch.float32: "float", torch.float64: "double"}
COLUMNS = ("length", "DFT, ms", "here, ms", "DFT / here", "torch / here", "error of DFT", "here", "torch",
           "inverse of DFT", "here", "torch")  # fmt: skip
Way = Callable[[torch.Tensor], torch.Tensor]
"""From rows [B, n, 2] of real and imaginary parts to such rows."""


def by_operator(n: int, dtype: torch.dtype, inverse: bool) -> onnx.ModelProto:
    """A model of one DFT."""
    rows = f"{ELEMENTS[dtype]}[{BATCH}, {n}, 2]"
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 20]> g ({rows} x) => ({rows} y) <int64 axis = {{1}}> '
        f"{{ y = DFT <inverse = {int(inverse)}> (x, , axis) }}"
    )


def by_torch(x: torch.Tensor, inverse: bool) -> torch.Tensor:
    """The transform by torch."""
    transform = torch.fft.ifft if inverse else torch.fft.fft
    return torch.view_as_real(transform(torch.view_as_complex(x), dim=1))


def ways(n: int, dtype: torch.dtype, inverse: bool, threads: int) -> dict[str, Way]:
    """The three, by name."""
    torchs = partial(by_torch, inverse=inverse)
    here = ir.to_proto(lower(make_fx(torchs)(torch.empty(BATCH, n, 2, dtype=dtype)), "inference", 20).model)
    once = by_operator(n, dtype, inverse)
    return {
        "DFT": partial(result, session(once, threads)),
        "here": partial(result, session(here, threads)),
        "torch": torchs,
    }


def error(way: Way, x: torch.Tensor, inverse: bool) -> str:
    """The largest, over the largest element, in units of the last place."""
    wide = x.numpy().astype(np.longdouble)
    exact = (np.fft.ifft if inverse else np.fft.fft)(wide[..., 0] + 1j * wide[..., 1], axis=1)
    found = way(x).numpy().astype(np.longdouble)
    gap = np.abs(np.stack([exact.real, exact.imag], -1) - found).max() / np.abs(exact).max()
    return f"{float(gap) / torch.finfo(x.dtype).eps:.3g}"


def rows(threads: int) -> Iterator[list[str]]:
    """A line for every length."""
    for n in LENGTHS:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(BATCH, n, 2, generator=generator)
        single, double = (ways(n, dtype, dtype == torch.float64, threads) for dtype in ELEMENTS)
        times = timed({name: partial(way, x) for name, way in single.items()}, ROUNDS, ROUND_SECONDS)
        yield [
            str(n),
            *(milliseconds(times[name]) for name in ("DFT", "here")),
            *(f"{ratio(times, name, 'here'):.2f}" for name in ("DFT", "torch")),
            *(error(way, x, inverse=False) for way in single.values()),
            *(error(way, x.double(), inverse=True) for way in double.values()),
        ]


def main() -> None:
    """Measures every length."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, parents=[flags()]
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    title = f"Fourier transforms, {options.threads} threads"
    found = rows(options.threads)
    show(page(title, __doc__ or "", ("torch", "onnxruntime-gpu"), COLUMNS, found), options.write)


if __name__ == "__main__":
    main()
