"""How fast a step is on a GPU: ``dort`` beside eager torch and inductor, and what a call costs the host.

    python benchmarks/step_cuda.py --write benchmarks/results/step-cuda.md

A Llama of transformers' sizes, its attention by ``F.scaled_dot_product_attention``, under ``torch.autocast``. The
backends take turns in one process; a time is that of one step, waited for, and a median over the rounds; a ratio is the
median of the ratios within one round. Before anything is timed, outputs and gradients of every backend are held against
eager in float32: they may lie twice as far from it as eager's under autocast, in norms. *Memory* is what the process
holds on the device after some steps, over what eager does, each in a process of its own.

*Host* is a decoder layer of width 512 on (1, 8) in float32: the time until a call returns, the device not waited for.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from pages import flags, page, show
from processes import in_a_process
from torch import nn
from turns import Times, milliseconds, ratio, timed

from dort_compare.models import LlamaConfig, build
from dort_compare.trace.modules import Call, run_module

BACKENDS = ("eager", "inductor", "dort")
MODES = ("infer", "train")
PRECISIONS = ("bfloat16", "float16", "float32")
MAY_ERR, STEPS, CALLS = 2.0, 3, 50
Step = Callable[[], Any]


def loss_of(output: torch.Tensor) -> torch.Tensor:
    """The mean square distance from ones."""
    return (output - 1).square().mean()


def autocast(precision: str) -> torch.autocast | nullcontext[None]:
    """The precision that a step runs in."""
    return nullcontext() if precision == "float32" else torch.autocast("cuda", getattr(torch, precision))


def subject(layers: int, hidden: int, size: tuple[int, int]) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A Llama with its tokens, on the device."""
    heads, intermediate = max(1, hidden // 128), hidden * 43 // 16
    config = LlamaConfig(hidden, heads, intermediate=intermediate, layers=layers, attention="sdpa")
    return build("model", config, batch=size[0], seq=size[1], device="cuda")


def compiled(model: nn.Module, backend: str) -> Any:
    """The model, compiled unless ``backend`` is "eager"."""
    return model if backend == "eager" else torch.compile(model, backend=backend)


def step_of(function: Any, model: nn.Module, inputs: tuple[torch.Tensor, ...], mode: str, precision: str) -> Step:
    """One call without gradients, or one forward and backward pass."""

    @torch.no_grad()
    def infer() -> None:
        with autocast(precision):
            function(*inputs)

    def train() -> None:
        model.zero_grad(set_to_none=True)
        with autocast(precision):
            loss = loss_of(function(*inputs))
        loss.backward()

    return train if mode == "train" else infer


def waited_for(step: Step) -> Step:
    """The step, and all that it has asked of the device."""

    def run() -> None:
        step()
        torch.cuda.synchronize()

    return run


def check(model: nn.Module, inputs: tuple[torch.Tensor, ...], mode: str, precision: str, functions: Any) -> None:
    """Ends the program where outputs or gradients of a backend lie further from float32 than is right."""
    dtype = None if precision == "float32" else getattr(torch, precision)
    parameters = dict(model.named_parameters())
    backward, loss = mode == "train", loss_of if mode == "train" else None
    exact = run_module(model, parameters, Call(inputs, backward=backward, loss=loss))
    right = {**exact.outputs, **exact.gradients}
    allowed: dict[str, float] = {}
    for backend, function in functions.items():
        found = run_module(function, parameters, Call(inputs, backward=backward, loss=loss, autocast=dtype))
        for name, tensor in {**found.outputs, **found.gradients}.items():
            error = ((tensor.float() - right[name]).norm() / right[name].norm()).item()
            limit = allowed.setdefault(name, MAY_ERR * error + 1e-5)
            if not error <= limit:
                raise SystemExit(f"{backend}: {name} is {error:.2g} from float32, allowed {limit:.2g}")


def speed(layers: int, hidden: int, size: tuple[int, int], mode: str, precision: str, rounds: int) -> Times:
    """Seconds by backend."""
    model, inputs = subject(layers, hidden, size)
    functions = {backend: compiled(model, backend) for backend in BACKENDS}
    check(model, inputs, mode, precision, functions)
    steps = {b: waited_for(step_of(function, model, inputs, mode, precision)) for b, function in functions.items()}
    return timed(steps, rounds, 0.0)


def held(layers: int, hidden: int, size: tuple[int, int], mode: str, precision: str, backend: str) -> dict[str, float]:
    """Bytes that the process holds on the device after some steps, and seconds of the first."""
    model, inputs = subject(layers, hidden, size)
    step = waited_for(step_of(compiled(model, backend), model, inputs, mode, precision))
    start = time.perf_counter()
    step()
    first = time.perf_counter() - start
    for _ in range(STEPS):
        step()
    free, total = torch.cuda.mem_get_info()
    return {"held": total - free, "first": first}


def host(mode: str, rounds: int) -> Times:
    """Seconds until a call of a small layer returns, by backend."""
    model, inputs = build("decoder", LlamaConfig(attention="sdpa"), batch=1, seq=8, device="cuda")
    functions = {backend: compiled(model, backend) for backend in BACKENDS}
    check(model, inputs, mode, "float32", functions)
    times: dict[str, list[float]] = {backend: [] for backend in BACKENDS}
    steps = {b: step_of(function, model, inputs, mode, "float32") for b, function in functions.items()}
    for _ in range(rounds):
        for backend, step in steps.items():
            waited_for(step)()
            calls = [_until_it_returns(step) for _ in range(CALLS)]
            times[backend].append(statistics.median(calls))
    return times


def _until_it_returns(step: Step) -> float:
    start = time.perf_counter()
    step()
    taken = time.perf_counter() - start
    torch.cuda.synchronize()
    return taken


def rows(options: argparse.Namespace) -> Iterator[list[str]]:
    """A line of the table for every precision and mode, then the host's."""
    sizes = [str(options.layers), str(options.hidden), options.size]
    for precision in options.precisions:
        for mode in options.modes:
            where = [*sizes, mode, precision]
            times = in_a_process(["--only", "speed", *where, str(options.rounds)], options.threads)
            of = {b: in_a_process(["--only", "held", *where, b], options.threads) for b in BACKENDS}
            memory = [f"{of['dort']['held'] / of[b]['held']:.2f}" for b in ("eager", "inductor")]
            firsts = [f"{of[b]['first']:.1f}" for b in ("dort", "inductor")]
            yield line(
                f"{options.layers} layers, {options.hidden}", options.size, mode, precision, times, memory, firsts
            )
    for mode in options.modes:
        times = in_a_process(["--only", "host", mode, str(options.rounds)], options.threads)
        yield line("host: 1 decoder, 512", "1x8", mode, "float32", times, ["", ""], ["", ""])


def line(
    part: str, size: str, mode: str, precision: str, times: Times, memory: list[str], firsts: list[str]
) -> list[str]:
    """One line of the table."""
    ratios = (f"{ratio(times, backend, 'dort'):.2f}" for backend in ("eager", "inductor"))
    shown = f"({size.replace('x', ', ')})"
    found = [part, shown, mode, precision, *(milliseconds(times[b]) for b in BACKENDS), *ratios, *memory, *firsts]
    print(" | ".join(found), flush=True)
    return found


COLUMNS = (
    *("part", "size", "mode", "precision", "eager, ms", "inductor, ms", "dort, ms", "eager / dort", "inductor / dort"),
    *("memory over eager's", "over inductor's", "first call, s", "inductor's, s"),
)


def measured(what: str, *given: str) -> Any:
    """One thing, measured in this process."""
    if what == "host":
        return host(given[0], int(given[1]))
    layers, hidden, size, mode, precision, last = given
    where = int(layers), int(hidden), tuple(map(int, size.split("x"))), mode, precision
    return speed(*where, int(last)) if what == "speed" else held(*where, last)  # type: ignore[arg-type]


def main() -> None:
    """Measures everything, or one thing in this process."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, parents=[flags()]
    )
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--size", default="4x2048", metavar="BATCHxSEQ")
    parser.add_argument("--precisions", nargs="+", default=["bfloat16", "float16"], choices=PRECISIONS)
    parser.add_argument("--modes", nargs="+", default=[*MODES], choices=MODES)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("no CUDA device: torch.cuda.is_available() is False")
    if options.only:
        warnings.simplefilter("ignore")
        print(json.dumps(measured(*options.only)))
        return
    title = f"How fast a step is on a GPU: {torch.cuda.get_device_name()}"
    show(page(title, __doc__ or "", ("torch", "onnxruntime-gpu"), COLUMNS, rows(options)), options.write)


if __name__ == "__main__":
    main()
