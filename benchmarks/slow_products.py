"""What training with large products takes: those left to torch, and all in ONNX Runtime.

    python benchmarks/slow_products.py --write benchmarks/results/slow-products.md

Every line is a training step of a small network, float32: two linear layers around a GELU, or convolutions around a
SiLU; compiled as it is by default, which on processors with AVX-512 leaves large gradients of convolutions to torch,
and large products of matrices on those of Intel, and with `fallback=False`, which leaves nothing. Eager and the two
take turns on the CPU, after the gradients of all have been held against those of float64. A ratio is the median of the
ratios within a round: above 1, leaving takes less time. Where nothing is large, both are the same.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from pages import flags, page, show
from torch import nn
from turns import milliseconds, ratio, timed

ROUNDS, ROUND_SECONDS, TOLERANCE = 9, 0.2, 1e-4
COLUMNS = ("network", "inputs", "eager, ms", "left, ms", "whole, ms", "whole / left", "eager / left")
Step = Callable[[], list[torch.Tensor]]


def linear(width: int, inner: int) -> nn.Module:
    """Two linear layers."""
    return nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))


def convolutions(channels: int, kernel: int, groups: int = 1) -> nn.Module:
    """Three convolutions, of which the first reads what needs no gradient."""
    layers = [nn.Conv2d(channels, channels, kernel, padding=kernel // 2, groups=groups) for _ in range(3)]
    return nn.Sequential(layers[0], nn.SiLU(), layers[1], nn.SiLU(), layers[2])


NETWORKS: tuple[tuple[str, Callable[[], nn.Module], tuple[int, ...]], ...] = (
    ("linear 768, 3072", partial(linear, 768, 3072), (1024, 768)),
    ("linear 512, 2048", partial(linear, 512, 2048), (2048, 512)),
    ("linear 512, 1376", partial(linear, 512, 1376), (2048, 512)),
    ("linear 1024, 4096", partial(linear, 1024, 4096), (4096, 1024)),
    ("convolutions 3 x 3 of 64", partial(convolutions, 64, 3), (4, 64, 56, 56)),
    ("convolutions 3 x 3 of 256", partial(convolutions, 256, 3), (4, 256, 14, 14)),
    ("convolutions 3 x 3 of 512", partial(convolutions, 512, 3), (4, 512, 7, 7)),
    ("convolutions 3 x 3 of 64, a channel each", partial(convolutions, 64, 3, 64), (4, 64, 56, 56)),
    ("convolutions 3 x 3 of 32", partial(convolutions, 32, 3), (1, 32, 32, 32)),
    ("convolutions 1 x 1 of 256", partial(convolutions, 256, 1), (4, 256, 28, 28)),
)


def step_of(function: Any, model: nn.Module, x: torch.Tensor) -> Step:
    """Forward and backward."""

    def step() -> list[torch.Tensor]:
        model.zero_grad(set_to_none=True)
        function(x).square().mean().backward()
        return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]

    return step


def line(name: str, network: Callable[[], nn.Module], shape: tuple[int, ...]) -> list[str]:
    """The times of one network."""
    torch.compiler.reset()
    torch.manual_seed(0)
    model, x = network(), torch.randn(shape)
    ways = {"eager": step_of(model, model, x)}
    for way, options in {"left": {}, "whole": {"fallback": False}}.items():
        own = copy.deepcopy(model)
        ways[way] = step_of(torch.compile(own, backend="dort", options=options), own, x)
    double = copy.deepcopy(model).double()
    exact = step_of(double, double, x.double())()
    for way, step in ways.items():
        for found, right in zip(step(), exact, strict=True):
            if not (found - right).abs().max() <= TOLERANCE * right.abs().max():
                raise SystemExit(f"{name}: a gradient of {way} is further from float64 than {TOLERANCE}")
    times = timed(ways, ROUNDS, ROUND_SECONDS)
    shown = [milliseconds(times[way]) for way in ways]
    ratios = [f"{ratio(times, other, 'left'):.2f}" for other in ("whole", "eager")]
    return [name, "x".join(map(str, shape)), *shown, *ratios]


def main() -> None:
    """Measures every network."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, parents=[flags()]
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    title = f"Large products left to torch, CPU, {options.threads} threads"
    rows: Iterator[list[str]] = (line(*network) for network in NETWORKS)
    show(page(title, __doc__ or "", ("torch", "onnxruntime-gpu"), COLUMNS, rows), options.write)


if __name__ == "__main__":
    main()
