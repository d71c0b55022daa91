"""What sums in two stages cost and gain beside ONNX Runtime's one reduction, and torch's.

    python benchmarks/long_sums.py --write benchmarks/results/long-sums.md

Every line is a sum of a float32 tensor along some dimensions, by ONNX Runtime at once, by it as it is lowered here, in
two stages, and by torch; the three take turns on the CPU. *Error* is the largest distance from the sum in float64, over
the largest sum: of terms that all are 0.1, and of random ones between 0 and 1. A ratio of times is the median of the
ratios within a round.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial

import onnx
import onnx_ir as ir
import torch
from pages import flags, page, show
from sessions import result, session
from torch.fx.experimental.proxy_tensor import make_fx
from turns import milliseconds, ratio, timed

from dort_compare.lowering import lower

ROUNDS, ROUND_SECONDS = 15, 0.02
SUMS: dict[str, tuple[Sequence[int], Sequence[int]]] = {
    "bias of a layer": ((2, 1024, 512), (0, 1)),
    "bias of the last layer": ((2048, 4000), (0,)),
    "weight of a norm, long batch": ((8192, 64), (0,)),
    "a loss": ((16, 1024, 512), (0, 1, 2)),
    "a loss of few elements": ((64, 64), (0, 1)),
    "a prime number of rows": ((8191, 64), (0,)),
    "along a vocabulary": ((256, 32000), (1,)),
    "bias of a convolution": ((4, 64, 112, 112), (0, 2, 3)),
}
COLUMNS = ("sum", "of", "along", "at once, ms", "here, ms", "at once / here", "torch / here", "error of 0.1s at once",
           "here", "torch", "error of random at once", "here", "torch")  # fmt: skip


def at_once(shape: Sequence[int], dims: Sequence[int]) -> onnx.ModelProto:
    """A model of one ReduceSum."""
    kept = [size for d, size in enumerate(shape) if d not in dims]
    axes = ", ".join(map(str, dims))
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 18]> g (float{list(shape)} x) => (float{kept or ""} y) '
        f"<int64[{len(dims)}] axes = {{{axes}}}> {{ y = ReduceSum <keepdims = 0> (x, axes) }}"
    )


def rows(threads: int) -> Iterator[list[str]]:
    """A line for every sum."""
    for what, (shape, dims) in SUMS.items():
        by_torch = partial(torch.sum, dim=dims)
        traced = make_fx(by_torch)(torch.empty(shape))
        models = (at_once(shape, dims), ir.to_proto(lower(traced, "inference", 18).model))
        once, here = (partial(result, session(model, threads)) for model in models)
        ways = {"once": once, "here": here, "torch": by_torch}
        random = torch.rand(shape, generator=torch.Generator().manual_seed(0))
        errors = [[f"{error(way, x, dims):.0e}" for way in ways.values()] for x in (torch.full(shape, 0.1), random)]
        times = timed({name: partial(way, random) for name, way in ways.items()}, ROUNDS, ROUND_SECONDS)
        yield [
            what,
            str(tuple(shape)),
            str(tuple(dims)),
            *(milliseconds(times[name]) for name in ("once", "here")),
            *(f"{ratio(times, name, 'here'):.2f}" for name in ("once", "torch")),
            *errors[0],
            *errors[1],
        ]


def error(way: partial[torch.Tensor], x: torch.Tensor, dims: Sequence[int]) -> float:
    """The largest, over the largest sum."""
    exact = x.double().sum(tuple(dims))
    return float((way(x) - exact).abs().max() / exact.abs().max())


def main() -> None:
    """Measures every sum."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, parents=[flags()]
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    title = f"Sums of many terms, {options.threads} threads"
    found = rows(options.threads)
    show(page(title, __doc__ or "", ("torch", "onnxruntime-gpu"), COLUMNS, found), options.write)


if __name__ == "__main__":
    main()
