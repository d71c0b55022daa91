"""Single operators in `dort` beside eager torch: what a model of another kind than the ones that are timed may meet.

    python benchmarks/operators.py --write benchmarks/results/operators.md

Each line is one function of torch, compiled alone, of one tensor: by itself, and with its gradient. Eager and `dort`
take turns on the CPU, after results and gradients have been held against those of float64. A ratio is the median of the
ratios within a round. A single operator gains nothing from what it stands among; where a ratio is below 1, ONNX
Runtime's kernel, or the several that stand for one of torch's, are slower. Much of what is slower by more than a border
between sessions costs is left to torch's kernel (left-to-torch.md), as adaptive maximum pools of this size are.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from pages import flags, page, show
from torch import Tensor
from torch.nn import functional as F
from turns import milliseconds, ratio, timed

ROUNDS, ROUND_SECONDS = 9, 0.02
ROWS, IMAGE, VOLUME = (512, 2048), (4, 16, 128, 128), (1, 4, 16, 64, 64)
COLUMNS = ("operator", "of", "eager, ms", "dort, ms", "eager / dort", "with gradient: eager, ms", "dort, ms",
           "eager / dort")  # fmt: skip
Function = Callable[[Tensor], Tensor]

ELEMENTWISE: dict[str, Function] = {
    "relu": F.relu,
    "leaky_relu": F.leaky_relu,
    "relu6": F.relu6,
    "hardswish": F.hardswish,
    "gelu": F.gelu,
    "gelu, by tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "elu": F.elu,
    "softplus": F.softplus,
    "logsigmoid": F.logsigmoid,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "exp": torch.exp,
    "log of squares": lambda x: (x * x + 1).log(),
    "sin": torch.sin,
    "clamp": partial(torch.clamp, min=-1, max=1),
}
REDUCTIONS: dict[str, Function] = {
    "softmax": partial(torch.softmax, dim=1),
    "softmax, of columns": partial(torch.softmax, dim=0),
    "log_softmax": partial(torch.log_softmax, dim=1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "sum": torch.sum,
    "mean, of rows": partial(torch.mean, dim=1),
    "amax, of columns": partial(torch.amax, dim=0),
    "var": partial(torch.var, dim=1),
    "cumsum": partial(torch.cumsum, dim=1),
    "topk": lambda x: x.topk(10, 1).values,
    "binary_cross_entropy_with_logits": lambda x: F.binary_cross_entropy_with_logits(x, torch.zeros_like(x)),
}
IMAGES: dict[str, Function] = {
    "interpolate, nearest": partial(F.interpolate, scale_factor=2),
    "interpolate, bilinear": partial(F.interpolate, scale_factor=2, mode="bilinear"),
    "interpolate, bicubic": partial(F.interpolate, scale_factor=2, mode="bicubic"),
    "interpolate, bilinear, antialiased": partial(F.interpolate, size=(77, 77), mode="bilinear", antialias=True),
    "max_pool2d": partial(F.max_pool2d, kernel_size=2),
    "avg_pool2d": partial(F.avg_pool2d, kernel_size=3, stride=1, padding=1),
    "adaptive_avg_pool2d": partial(F.adaptive_avg_pool2d, output_size=7),
    "adaptive_max_pool2d": partial(F.adaptive_max_pool2d, output_size=7),
    "pad, reflected": partial(F.pad, pad=(3, 3, 3, 3), mode="reflect"),
    "pad, repeated": partial(F.pad, pad=(3, 3, 3, 3), mode="replicate"),
    "group_norm": partial(F.group_norm, num_groups=4),
    "pixel_shuffle": partial(F.pixel_shuffle, upscale_factor=2),
}
VOLUMES: dict[str, Function] = {"interpolate, trilinear": partial(F.interpolate, scale_factor=2, mode="trilinear")}
COUNTS: dict[str, Function] = {"sum": torch.sum, "sum, of rows": partial(torch.sum, dim=1)}


def operators() -> Iterator[tuple[str, Function, Tensor]]:
    """Each with its name and operand."""
    torch.manual_seed(0)
    rows = torch.randn(ROWS)
    groups = ((ELEMENTWISE, rows), (REDUCTIONS, rows), (IMAGES, torch.randn(IMAGE)), (VOLUMES, torch.randn(VOLUME)))
    for functions, operand in (*groups, (COUNTS, rows > 0), (COUNTS, (rows * 100).long())):
        yield from ((name, function, operand) for name, function in functions.items())


@torch.no_grad()
def alone(function: Function, x: Tensor) -> list[Tensor]:
    """The result, where nobody asks for a gradient."""
    return [function(x)]


def with_gradient(function: Function, x: Tensor, incoming: Tensor) -> list[Tensor]:
    """The result, and the gradient that ``incoming``, of the shape of the result, makes."""
    leaf = x.detach().requires_grad_()
    result = function(leaf)
    return [result.detach(), *torch.autograd.grad(result, leaf, incoming)]


def right(found: Sequence[Tensor], exact: Sequence[Tensor]) -> None:
    """Raises an AssertionError where a result or a gradient is not that of float64."""
    for value, of_float64 in zip(found, exact, strict=True):
        scale = float(of_float64.abs().max())
        torch.testing.assert_close(value, of_float64, rtol=1e-4, atol=1e-4 * scale, check_dtype=False)


def rows() -> Iterator[list[str]]:
    """A line for every operator."""
    for name, function, x in operators():
        torch._dynamo.reset()
        compiled = torch.compile(function, backend="dort", dynamic=False)
        wide = x.double() if x.is_floating_point() else x
        steps = [(alone, ())]
        if x.is_floating_point():
            incoming = torch.randn(function(x).shape)
            steps.append((with_gradient, (incoming,)))
        cells = []
        for step, more in steps:
            right(step(compiled, x, *more), step(function, wide, *more))
            ways = {"eager": partial(step, function, x, *more), "dort": partial(step, compiled, x, *more)}
            times = timed(ways, ROUNDS, ROUND_SECONDS)
            cells += [milliseconds(times["eager"]), milliseconds(times["dort"]), f"{ratio(times, 'eager', 'dort'):.2f}"]
        yield [name, f"{str(x.dtype).removeprefix('torch.')} {tuple(x.shape)}", *cells, *[""] * (6 - len(cells))]


def main() -> None:
    """Measures every operator."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, parents=[flags()]
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    title = f"Single operators, {options.threads} threads"
    show(page(title, __doc__ or "", ("torch", "onnxruntime-gpu"), COLUMNS, rows()), options.write)


if __name__ == "__main__":
    main()
