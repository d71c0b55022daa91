"""How fast a compiled model infers and trains: ``dort`` beside eager torch, inductor and a bare ONNX Runtime session.

    python benchmarks/step.py --write benchmarks/results/step.md

The backends take turns in one process; each turn begins with a step that is not timed, so that none pays for the
threads and caches that the one before left. Times are medians over the rounds; a ratio is the median of the ratios
within one round, so that a machine that slows down slows both. Before anything is timed, the outputs and gradients of
every backend are held against float64: their elements may lie three times as far from it as eager's, and 1e-5 of the
largest; where ReLU cuts gradients off, these as a whole, by their norm, and 5e-2 of it, as one element that rounding
moves over zero changes all those below it.
*Bare* is the session of the compiled graph with its recorded inputs bound once, which nothing but ONNX Runtime's own
loop runs: for training, those of the forward and backward graphs one after the other, without loss and autograd, and
the backward graph as one session, where ``dort`` may run several.

The models are parts of a Llama of width 512, and GPT-2, BERT (width 768, 4000 tokens) and ResNet-18 of transformers,
all in training mode without dropout; the size is batch and tokens, or batch and side of the images. *Frozen* is
inference in evaluation mode where the parameters are constants: ``dort`` with its option ``freeze``, inductor with
``freezing``, and a bare session that holds them.

First calls and memory come from a process of their own each, with empty caches. Memory is the highest resident size
over several steps less that of the process when all is imported and the model made.

Eager's activations of 32 MiB and more are mapped anew in every step by glibc, and cleared by the kernel; ONNX Runtime
keeps its memory. Tunables of glibc in the command have it keep such blocks, too, as allocators that people preload do.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from pages import flags, page, show
from processes import in_a_process, peak, resident
from step_models import FAMILIES, PARTS_AND_FAMILIES, model_of
from torch import nn
from turns import Times, milliseconds, ratio, timed

from dort_compare import DebugBackend
from dort_compare.cache.folder import FOLDER_VARIABLE
from dort_compare.compiled import run_compiled
from dort_compare.rewrites import rewritten
from dort_compare.runtime.session import make_session
from dort_compare.scalars import as_tensor
from dort_compare.trace.call import Call
from dort_compare.trace.model_in_float64 import run_in_float64
from dort_compare.trace.modules import run_module

BACKENDS = ("eager", "inductor", "dort")
MODES = ("infer", "frozen", "train")
MAY_ERR, NOISE, CUT_OFF = 3.0, 1e-5, 5e-2
BATCH_SECONDS = 0.05
OPTIONS: dict[tuple[str, str], dict[str, Any]] = {
    ("dort", "frozen"): {"freeze": True},
    ("inductor", "frozen"): {"freezing": True},
}
STEPS = 3
Step = Callable[[], Any]


def loss_of(output: torch.Tensor) -> torch.Tensor:
    """The mean square distance from ones."""
    return (output - 1).square().mean()


def subject(part: str, layers: int, size: tuple[int, int], mode: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A model with its inputs."""
    model, inputs = model_of(part, layers, size)
    return model.train(mode != "frozen"), inputs


def compiled(model: nn.Module, backend: str, mode: str) -> Any:
    """The model, compiled unless ``backend`` is "eager"."""
    return model if backend == "eager" else torch.compile(model, backend=backend, options=OPTIONS.get((backend, mode)))


def step_of(function: Any, model: nn.Module, inputs: tuple[torch.Tensor, ...], mode: str) -> Step:
    """One call without gradients, or one forward and backward pass."""

    @torch.no_grad()
    def infer() -> None:
        function(*inputs)

    def train() -> None:
        model.zero_grad(set_to_none=True)
        loss_of(function(*inputs)).backward()

    return train if mode == "train" else infer


def bare_step(model: nn.Module, inputs: tuple[torch.Tensor, ...], mode: str) -> Step:
    """The sessions of the compiled graphs, their inputs bound once."""
    backend = DebugBackend(rewrites=True)
    run_compiled(model, Call(inputs, backward=mode == "train", loss=loss_of if mode == "train" else None), backend)
    held = {id(tensor) for tensor in (*model.parameters(), *model.buffers())} if mode == "frozen" else set()
    bound = []
    for graph in backend.graphs:
        given = {name: as_tensor(value).contiguous() for name, value in graph.named_inputs().items()}
        constants = {name: given[name] for name, source in graph.runs[0].sources.items() if id(source) in held}
        program = graph.program
        runs, settings = rewritten(program.model, program.providers), backend.options.session
        session = make_session(runs, settings, program.providers, frozen=constants).onnx_session
        binding = session.io_binding()
        for value in session.get_inputs():
            tensor = given[value.name]
            dtype = str(tensor.dtype).removeprefix("torch.")
            binding.bind_input(value.name, "cpu", 0, dtype, tuple(tensor.shape), tensor.data_ptr())
        for value in session.get_outputs():
            binding.bind_output(value.name, "cpu")
        bound.append((session, binding, given))

    def run() -> None:
        for session, binding, _ in bound:
            session.run_with_iobinding(binding)
            binding.get_outputs()

    return run


def check(model: nn.Module, inputs: tuple[torch.Tensor, ...], mode: str, backends: dict[str, Any]) -> None:
    """Ends the program where an output or gradient lies further from float64 than is right."""
    cuts_off = any(isinstance(module, nn.ReLU) for module in model.modules())
    orders_and_noise = {"outputs": (math.inf, NOISE), "gradients": (2, CUT_OFF) if cuts_off else (math.inf, NOISE)}
    call = Call(inputs, backward=mode == "train", loss=loss_of if mode == "train" else None)
    exact, parameters = run_in_float64(model, call), dict(model.named_parameters())
    found = {name: run_module(function, parameters, call) for name, function in backends.items()}
    for kind, (order, noise) in orders_and_noise.items():
        norm = functools.partial(torch.linalg.vector_norm, ord=order)
        for name, right in getattr(exact, kind).items():
            errors = {b: norm(getattr(o, kind)[name] - right).item() for b, o in found.items()}
            limit = MAY_ERR * errors["eager"] + noise * norm(right).item()
            if wrong := [backend for backend, error in errors.items() if not error <= limit]:
                raise SystemExit(f"{kind} {name}: wrong values from {', '.join(wrong)}: {errors}")


def speed(part: str, layers: int, size: tuple[int, int], mode: str, rounds: int) -> Times:
    """Seconds by backend."""
    model, inputs = subject(part, layers, size, mode)
    bare = bare_step(model, inputs, mode)
    functions = {backend: compiled(model, backend, mode) for backend in BACKENDS}
    check(model, inputs, mode, functions)
    steps = {name: step_of(function, model, inputs, mode) for name, function in functions.items()}
    return timed({**steps, "bare": bare}, rounds, BATCH_SECONDS)


def first_call(part: str, layers: int, size: tuple[int, int], mode: str, backend: str) -> dict[str, float]:
    """Seconds of the first call, and bytes of memory of several."""
    model, inputs = subject(part, layers, size, mode)
    before = resident()
    step = step_of(compiled(model, backend, mode), model, inputs, mode)
    start = time.perf_counter()
    step()
    first = time.perf_counter() - start
    for _ in range(STEPS):
        step()
    return {"first": first, "peak": peak() - before}


def in_empty_caches(*arguments: str, threads: int) -> Any:
    """The result of ``--only`` in a new process."""
    with tempfile.TemporaryDirectory() as cache:
        folders = {"TORCHINDUCTOR_CACHE_DIR": cache, FOLDER_VARIABLE: cache}
        return in_a_process(["--threads", str(threads), "--only", *arguments], threads, **folders)


def rows(options: argparse.Namespace) -> Iterator[list[str]]:
    """A line of the table for every part, depth, size and mode."""
    for part in options.parts:
        for layers in options.layers if part in ("model", "GPT-2", "BERT") else [1]:
            for size in [FAMILIES[part]] if part in FAMILIES else options.sizes:
                for mode in options.modes:
                    where = [part, str(layers), size, mode]
                    times = in_empty_caches("speed", *where, str(options.rounds), threads=options.threads)
                    calls = {b: in_empty_caches("first", *where, b, threads=options.threads) for b in BACKENDS}
                    row = line(part, layers, size, mode, times, calls)
                    print(" | ".join(row), flush=True)
                    yield row


def line(part: str, layers: int, size: str, mode: str, times: Times, calls: dict[str, dict[str, float]]) -> list[str]:
    """One line of the table."""
    firsts, peaks = ({b: calls[b][what] for b in BACKENDS} for what in ("first", "peak"))
    return [
        "ResNet-18" if part == "ResNet" else f"{part}, {layers} layer{'s' if layers > 1 else ''}",
        f"({size.replace('x', ', ')})",
        mode,
        *(milliseconds(times[name]) for name in (*BACKENDS, "bare")),
        *(f"{ratio(times, *pair):.2f}" for pair in (("eager", "dort"), ("inductor", "dort"), ("dort", "bare"))),
        f"{peaks['dort'] / peaks['eager']:.2f}",
        f"{peaks['dort'] / peaks['inductor']:.2f}",
        f"{firsts['dort']:.1f}",
        f"{firsts['inductor'] / firsts['dort']:.1f}",
    ]


COLUMNS = (
    *("part", "size", "mode", "eager, ms", "inductor, ms", "dort, ms", "bare, ms", "eager / dort", "inductor / dort"),
    *("dort / bare", "memory over eager's", "over inductor's", "first call, s", "inductor's over it"),
)


def main() -> None:
    """Measures everything, or one thing in this process."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, parents=[flags()]
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS_AND_FAMILIES, default=["attention", "decoder", "model"])
    parser.add_argument("--layers", nargs="+", type=int, default=[1, 4], help="of the model part, GPT-2 and BERT")
    parser.add_argument("--sizes", nargs="+", default=["2x1024", "1x8"], metavar="BATCHxSEQ", help="of Llama's parts")
    parser.add_argument("--modes", nargs="+", default=["infer", "train"], choices=MODES)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.only:
        warnings.simplefilter("ignore")
        what, part, layers, size, mode, last = options.only
        where = part, int(layers), tuple(map(int, size.split("x"))), mode
        print(json.dumps(speed(*where, int(last)) if what == "speed" else first_call(*where, last)))  # type: ignore[arg-type]
        return
    title = f"How fast a step is, float32, {options.threads} threads"
    show(page(title, __doc__ or "", ("torch", "onnxruntime-gpu"), COLUMNS, rows(options)), options.write)


if __name__ == "__main__":
    main()
