"""How fast a step is on a GPU: ``dort`` beside eager torch and inductor, and what a call costs the host.

    python benchmarks/step_cuda.py --write benchmarks/results/step-cuda.md

A Llama of transformers' sizes, its attention by ``F.scaled_dot_product_attention``, under ``torch.autocast``. The
backends take turns in one process; a time is that of one step, waited for, and a median over the rounds; a ratio is the
median of the ratios within one round. Before anything is timed, outputs and gradients of ``dort`` are held against
eager in float32: they may lie twice as far from it as eager's under autocast, in norms. *Memory* is what a backend
holds on the device after some steps, beside the model: all that torch's allocator and ONNX Runtime's keep. *Frozen* is
inference in evaluation mode where the parameters are constants: ``dort`` with its option ``freeze``, inductor with
``freezing``.

*Host* is a decoder layer of width 512 on (1, 8) in float32: the time until a call returns, the device not waited for;
*graphs*: with CUDA graphs, which ``dort`` has as its option ``cudagraphs`` and inductor as ``triton.cudagraphs``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import statistics
import time
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from pages import flags, page, show
from processes import in_a_process
from step import BACKENDS, MODES, OPTIONS, Step, loss_of
from torch import nn
from turns import milliseconds, ratio, timed

from dort_compare.models import LlamaConfig, build
from dort_compare.trace.call import Call
from dort_compare.trace.modules import run_module

PRECISIONS = ("bfloat16", "float16", "float32")
GRAPHS = {"dort": {"cudagraphs": True}, "inductor": {"triton.cudagraphs": True}}
MAY_ERR, NOISE, STEPS, CALLS = 2.0, 1e-5, 3, 50


def autocast(precision: str) -> torch.autocast | nullcontext[None]:
    """The precision that a step runs in."""
    return nullcontext() if precision == "float32" else torch.autocast("cuda", getattr(torch, precision))


def subject(layers: int, hidden: int, size: tuple[int, int]) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A Llama with its tokens, on the device."""
    heads, intermediate = max(1, hidden // 128), hidden * 43 // 16
    config = LlamaConfig(hidden, heads, intermediate=intermediate, layers=layers, attention="sdpa")
    return build("model", config, batch=size[0], seq=size[1], device="cuda")


def compiled(model: nn.Module, backend: str, mode: str, graphs: bool = False) -> Any:
    """The model, compiled unless ``backend`` is "eager"."""
    if backend == "eager":
        return model
    return torch.compile(model, backend=backend, options=GRAPHS[backend] if graphs else OPTIONS.get((backend, mode)))


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


def check(model: nn.Module, inputs: tuple[torch.Tensor, ...], mode: str, precision: str, function: Any) -> None:
    """Ends the program where outputs or gradients of ``function`` lie further from float32 than is right."""
    dtype = None if precision == "float32" else getattr(torch, precision)
    parameters = dict(model.named_parameters())
    backward, loss = mode == "train", loss_of if mode == "train" else None
    exact = run_module(model, parameters, Call(inputs, backward=backward, loss=loss))
    right = {**exact.outputs, **exact.gradients}
    narrow = Call(inputs, backward=backward, loss=loss, autocast=dtype)
    eager, found = (run_module(each, parameters, narrow) for each in (model, function))
    for name, tensor in {**found.outputs, **found.gradients}.items():
        theirs = {**eager.outputs, **eager.gradients}[name]
        error, allowed = (((t.float() - right[name]).norm() / right[name].norm()).item() for t in (tensor, theirs))
        if not error <= MAY_ERR * allowed + NOISE:
            raise SystemExit(f"dort: {name} is {error:.2g} from float32, eager {allowed:.2g}")


def speed(layers: int, hidden: int, size: tuple[int, int], mode: str, precision: str, rounds: int) -> dict[str, Any]:
    """Seconds by backend, and bytes that it holds on the device beside model and inputs."""
    model, inputs = subject(layers, hidden, size)
    model.train(mode != "frozen")
    steps, held = {}, {}
    functions = {backend: compiled(model, backend, mode) for backend in BACKENDS}
    for backend, function in functions.items():
        steps[backend] = step = waited_for(step_of(function, model, inputs, mode, precision))
        model.zero_grad(set_to_none=True)
        before = in_use()
        for _ in range(STEPS):
            step()
        held[backend] = in_use(cleared=False) - before
    check(model, inputs, mode, precision, functions["dort"])
    return {"times": timed(steps, rounds, 0.0), "held": held}


class Strict(logging.Handler):
    """Ends the program where a backend warns, as of what runs in eager torch."""

    def emit(self, record: logging.LogRecord) -> None:
        """Ends the program with what is logged."""
        raise SystemExit(record.getMessage())


def in_use(*, cleared: bool = True) -> int:
    """Bytes of the device that are not free, without what torch keeps for later if ``cleared``."""
    if cleared:
        torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return total - free


def host(mode: str, rounds: int, graphs: bool) -> dict[str, Any]:
    """Seconds until a call of a small layer returns, by backend."""
    model, inputs = build("decoder", LlamaConfig(attention="sdpa"), batch=1, seq=8, device="cuda")
    model.train(mode != "frozen")
    functions = {backend: compiled(model, backend, mode, graphs) for backend in BACKENDS}
    steps = {b: step_of(function, model, inputs, mode, "float32") for b, function in functions.items()}
    for _ in range(STEPS + 1):  # from the third on CUDA graphs are launched
        steps["dort"]()
    check(model, inputs, mode, "float32", functions["dort"])
    times: dict[str, list[float]] = {backend: [] for backend in BACKENDS}
    for _ in range(rounds):
        for backend, step in steps.items():
            waited_for(step)()
            calls = [_until_it_returns(step) for _ in range(CALLS)]
            times[backend].append(statistics.median(calls))
    return {"times": times}


def _until_it_returns(step: Step) -> float:
    start = time.perf_counter()
    step()
    taken = time.perf_counter() - start
    torch.cuda.synchronize()
    return taken


def rows(options: argparse.Namespace) -> Iterator[list[str]]:
    """The host's lines of the table, then one for every precision and mode."""
    hosts = [(mode, graphs) for mode in options.modes for graphs in ("", "graphs") if not graphs or mode != "frozen"]
    for mode, graphs in hosts:
        found = in_a_process(["--only", "host", mode, str(options.rounds), graphs], options.threads)
        yield line(f"host: 1 decoder, 512{graphs and ', graphs'}", "1x8", mode, "float32", found)
    for precision, mode in itertools.product(options.precisions, options.modes):
        where = [str(options.layers), str(options.hidden), options.size, mode, precision, str(options.rounds)]
        found = in_a_process(["--only", "speed", *where], options.threads)
        yield line(f"{options.layers} layers, {options.hidden}", options.size, mode, precision, found)


def line(part: str, size: str, mode: str, precision: str, found: dict[str, Any]) -> list[str]:
    """One line of the table."""
    times, held = found["times"], found.get("held")
    cells = [part, f"({size.replace('x', ', ')})", mode, precision, *(milliseconds(times[b]) for b in BACKENDS)]
    cells += [f"{ratio(times, backend, 'dort'):.2f}" for backend in ("eager", "inductor")]
    cells += [f"{held['dort'] / held[b]:.2f}" for b in ("eager", "inductor")] if held else ["", ""]
    print(" | ".join(cells), flush=True)
    return cells


COLUMNS = (
    *("part", "size", "mode", "precision", "eager, ms", "inductor, ms", "dort, ms", "eager / dort", "inductor / dort"),
    *("memory over eager's", "over inductor's"),
)


def gpu_flags() -> argparse.ArgumentParser:
    """The sizes of the Llama, for the ``parents`` of a program's parser."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--size", default="4x2048", metavar="BATCHxSEQ")
    return parser


def name_of_device() -> str:
    """The GPU. Ends the program where there is none."""
    if not torch.cuda.is_available():
        raise SystemExit("no CUDA device: torch.cuda.is_available() is False")
    return torch.cuda.get_device_name()


def measured(what: str, *given: str) -> Any:
    """One thing, measured in this process."""
    if what == "host":
        mode, rounds, graphs = given
        return host(mode, int(rounds), bool(graphs))
    layers, hidden, size, mode, precision, rounds = given
    return speed(int(layers), int(hidden), tuple(map(int, size.split("x"))), mode, precision, int(rounds))  # type: ignore[arg-type]


def main() -> None:
    """Measures everything, or one thing in this process."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, parents=[flags(), gpu_flags()]
    )
    parser.add_argument("--precisions", nargs="+", default=["bfloat16", "float16"], choices=PRECISIONS)
    parser.add_argument("--modes", nargs="+", default=[*MODES], choices=MODES)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    title = f"How fast a step is on a GPU: {name_of_device()}"
    if options.only:
        warnings.simplefilter("ignore")
        logging.getLogger("dort_compare").addHandler(Strict(logging.WARNING))
        print(json.dumps(measured(*options.only)))
        return
    show(page(title, __doc__ or "", ("torch", "onnxruntime-gpu"), COLUMNS, rows(options)), options.write)


if __name__ == "__main__":
    main()
