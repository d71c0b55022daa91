"""What it gains that torch's threads let go of the cores before a session runs: training steps with an optimizer.

    python benchmarks/torch_threads.py --write benchmarks/results/torch-threads.md

A step is a forward and a backward pass of a part of a Llama and a step of AdamW on all of its parameters; *let go* is
``dort`` as it is, *busy* the same where torch's threads go on waiting for the next kernel of torch's. Eager and the two
take turns, after their losses of five steps have been held against each other. Times are medians over the rounds, a
ratio is the median of the ratios within a round: above 1, letting them go takes less time. With OMP_WAIT_POLICY=PASSIVE
in the command no thread of torch's waits busily, eager's neither.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Iterator
from unittest import mock

import torch
from pages import flags, page, show
from step import loss_of
from turns import milliseconds, ratio, timed

from dort_compare.models import PARTS, build
from dort_compare.models.llama import LlamaConfig
from dort_compare.runtime import torch_threads

COLUMNS = ("part", "size", "eager, ms", "let go, ms", "busy, ms", "eager / let go", "busy / let go")
SIZES = ((1, 8), (1, 128), (2, 1024))
WAYS = ("eager", "let go", "busy")
ROUND_SECONDS, STEPS = 0.05, 5


def stay() -> None:
    """Leaves torch's threads as they are."""


def trained(part: str, size: tuple[int, int], way: str) -> Callable[[], float]:
    """A training step of a part, always of the same weights at first; it returns the loss."""
    model, inputs = build(part, LlamaConfig(layers=1), batch=size[0], seq=size[1])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    function = model if way == "eager" else torch.compile(model, backend="dort", dynamic=False)

    def step() -> float:
        optimizer.zero_grad()
        loss = loss_of(function(*inputs))
        loss.backward()
        optimizer.step()
        return loss.item()

    return mock.patch.object(torch_threads, "let_go", new=stay)(step) if way == "busy" else step


def line(part: str, size: tuple[int, int], rounds: int) -> list[str]:
    """The times of one part at one size."""
    steps = {way: trained(part, size, way) for way in WAYS}
    losses = [torch.tensor([step() for _ in range(STEPS)]) for step in steps.values()]
    for others in losses[1:]:
        torch.testing.assert_close(others, losses[0], rtol=1e-4, atol=0)
    times = timed(steps, rounds, ROUND_SECONDS)
    over = functools.partial(ratio, times, over="let go")
    shown = (milliseconds(times[way]) for way in WAYS)
    return [part, str(size), *shown, f"{over('eager'):.2f}", f"{over('busy'):.2f}"]


def lines(rounds: int) -> Iterator[list[str]]:
    """Those of all parts and sizes."""
    for part in PARTS:
        for size in SIZES:
            torch._dynamo.reset()
            yield line(part, size, rounds)


def main() -> None:
    """Measures every part at every size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, parents=[flags()]
    )
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    title = f"Torch's threads let go before a session runs, {options.threads} threads"
    found = lines(options.rounds)
    show(page(title, __doc__, ("torch", "onnxruntime-gpu"), COLUMNS, found), options.write)


if __name__ == "__main__":
    main()
