"""What it gives that `dort` computes attention a head at a time, and causal attention in blocks: time and memory.

    python benchmarks/by_head.py --write benchmarks/results/by-head.md

Every line is ``F.scaled_dot_product_attention`` of one size, or the same *written* out as products and a softmax,
forward without a gradient (infer), or forward and backward (train). *Whole* is `dort` with all scores at once, *by
head* as it is: a head at a time and, where causal, in blocks of queries without the keys behind them. The three take
turns in one process; times are medians over the rounds, ratios the medians of those within a round. Results and
gradients are held against eager's before anything is timed. Memory comes from a process of its own each: the highest
resident size over three calls less that before the first one, when a small graph has been compiled.
"""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from unittest import mock

import torch
from pages import flags, page, show
from processes import in_a_process, peak, resident
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from turns import milliseconds, ratio, timed

from dort_compare import rewrites
from dort_compare.rewrites import STAGES
from dort_compare.rewrites.rules.by_head import by_head

ROUNDS = 9
WAYS = ("eager", "whole", "by head")
SIZES = ["32x12x128x64", "2x12x512x64", "4x16x512x64 causal", "2x8x1024x64 causal", "2x12x2048x64", "1x12x4096x64",
         "1x8x4096x64 causal", "2x8x1024x64 written", "2x8x1024x64 causal written"]  # fmt: skip
Attention = Callable[..., Tensor]


def attention(way: str, kinds: Collection[str]) -> Attention:
    """The function, compiled with rewrites as ``way`` says."""
    is_causal = "causal" in kinds

    def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return scaled_dot_product_attention(q, k, v, is_causal=is_causal)

    def written(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.mT * q.shape[-1] ** -0.5
        if is_causal:
            hidden = torch.ones(scores.shape[2:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, -torch.inf)
        return scores.softmax(-1) @ v

    attend = written if "written" in kinds else fused
    attend.__code__ = attend.__code__.replace()  # dynamo finds compiled code by this object
    return attend if way == "eager" else torch.compile(attend, backend="dort", options={"cache": False})


def compiling(way: str) -> AbstractContextManager[object]:
    """Within it, what compiles does so as ``way`` says."""
    apart = [{op: [rule for rule in rules if rule is not by_head] for op, rules in each.items()} for each in STAGES]
    return mock.patch.object(rewrites, "STAGES", apart if way == "whole" else STAGES)


def operands(size: list[int]) -> list[Tensor]:
    """Queries, keys and values of (B, H, L, E), always the same."""
    draw = torch.Generator().manual_seed(0)
    return [torch.randn(size, generator=draw).requires_grad_() for _ in "qkv"]


def call(mode: str, function: Attention, tensors: list[Tensor]) -> list[Tensor]:
    """The result, and in training the gradients of the sum of its squares."""
    with torch.set_grad_enabled(mode == "train"):
        result = function(*tensors)
    return [result, *torch.autograd.grad(result.square().sum(), tensors)] if mode == "train" else [result]


def parsed(size: str) -> tuple[list[int], list[str]]:
    """(B, H, L, E), and what kind of attention it is."""
    numbers, *kinds = size.split()
    return [int(number) for number in numbers.split("x")], kinds


def memory(size: str, mode: str, way: str) -> int:
    """MiB that three calls take."""
    numbers, kinds = parsed(size)
    tensors = operands(numbers)
    call(mode, attention(way, kinds), operands([1, 1, 8, 8]))
    torch._dynamo.reset()
    before = resident()
    function = attention(way, kinds)
    with compiling(way):
        for _ in range(3):
            call(mode, function, tensors)
    return (peak() - before) // 2**20


def row(size: str, mode: str, threads: int) -> list[str]:
    """A line of the table. Ends the program where two ways disagree."""
    numbers, kinds = parsed(size)
    tensors = operands(numbers)
    torch._dynamo.reset()
    runs = {}
    for way in WAYS:
        runs[way] = functools.partial(call, mode, attention(way, kinds), tensors)
        with compiling(way):
            found = runs[way]()
        for got, expected in zip(found, runs["eager"](), strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5 * float(expected.detach().abs().max()))
    times = timed(runs, ROUNDS, 0.0)
    taken = {way: in_a_process(["--memory", size, mode, way], threads) for way in WAYS}
    return [
        size,
        mode,
        *(milliseconds(times[way]) for way in WAYS),
        *(f"{ratio(times, way, 'by head'):.2f}" for way in WAYS[:2]),
        *(f"{taken[way]}" for way in WAYS),
        f"{taken['whole'] / taken['by head']:.1f}",
    ]


def rows(sizes: list[str], threads: int) -> Iterator[list[str]]:
    """A line for every size, in inference and in training."""
    for size in sizes:
        for mode in ("infer", "train"):
            yield row(size, mode, threads)


def main() -> None:
    """Measures every size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, parents=[flags()]
    )
    parser.add_argument("--sizes", nargs="+", default=SIZES, metavar="BATCHxHEADSxLENGTHxWIDTH")
    parser.add_argument("--memory", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.memory:
        print(json.dumps(memory(*options.memory)))
        return
    columns = ("size", "mode", *(f"{way}, ms" for way in WAYS), "eager / by head", "whole / by head",
               *(f"{way}, MiB" for way in WAYS), "whole / by head")  # fmt: skip
    title = f"Attention a head at a time, float32, {options.threads} threads"
    found = rows(options.sizes, options.threads)
    show(page(title, __doc__ or "", ("torch", "onnxruntime-gpu"), columns, found), options.write)


if __name__ == "__main__":
    main()
