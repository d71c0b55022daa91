"""What compiled graphs on disk save: the first call of ``dort`` in a process that finds them, over one that does not.

    python benchmarks/cache.py --write benchmarks/results/cache.md

A first call is a forward and a backward pass of a Llama model of so many layers, from ``torch.compile`` on, in a
process of its own; it is time of the processor, on one thread, imports apart. *Empty*: with a folder in which nothing
is yet; *found*: with what that process has left there; *off*: with ``cache=False``. *Backend* is the part of it that
this project and ONNX Runtime take; dynamo and AOTAutograd, which trace the model, take the rest. A ratio is the median
of the ratios within a round. The gradients of the three must be equal to the last bit, and *found* must lower nothing.

*Optimizers* is what ONNX Runtime's optimizers take of the first call: its sessions, less sessions of the models that it
has optimized already. Those models are not kept: they are bound to the provider and to the processor, and hold what
was folded, *folded* MiB of it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnxruntime as ort
import torch
from pages import page, show
from processes import in_a_process

from dort_compare.backends import building, partition
from dort_compare.models import build
from dort_compare.models.llama import LlamaConfig
from dort_compare.runtime import program
from dort_compare.runtime.constants import apart
from dort_compare.runtime.providers import SessionSettings

BATCH, SEQ = 1, 16
VARIANTS = ("empty", "found", "off")


def first_call(layers: int, cache: str | bool) -> dict[str, Any]:
    """Seconds of a first call and of the backend in it, lowerings, a digest of all gradients, the models."""
    model, inputs = build("model", LlamaConfig(layers=layers), batch=BATCH, seq=SEQ)
    lowered, compiled = watched(building, "lower"), watched(partition, "compile_graph")
    sessions = watched(program, "make_session")
    start = time.process_time()
    torch.compile(model, backend="dort", options={"cache": cache})(*inputs).square().mean().backward()
    first = time.process_time() - start
    gradients = b"".join(p.grad.numpy().tobytes() for p in model.parameters() if p.grad is not None)
    return {
        "first": first,
        "backend": sum(seconds for seconds, *_ in compiled),
        "lowered": len(lowered),
        "gradients": hashlib.sha256(gradients).hexdigest(),
        **optimized([arguments for _, *arguments in sessions]),
    }


def watched(place: Any, name: str) -> list[tuple[Any, ...]]:
    """Seconds and arguments of every call of a function from now on."""
    calls: list[tuple[Any, ...]] = []
    function: Callable[..., Any] = getattr(place, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        start = time.process_time()
        try:
            return function(*args, **kwargs)
        finally:
            calls.append((time.process_time() - start, *args))

    setattr(place, name, call)
    return calls


def optimized(sessions: list[list[Any]]) -> dict[str, float]:
    """Seconds that ONNX Runtime's optimizers take for the models of sessions, and MiB of what they fold."""
    seconds = folded = 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "optimized.onnx"
        for model, settings, providers, *_ in sessions:
            proto = apart(model)[0]
            plain = session(proto.SerializeToString(), settings, providers)
            session(proto.SerializeToString(), settings, providers, optimized_model_filepath=str(path))
            done = path.read_bytes()
            off = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
            seconds += plain - session(done, settings, providers, graph_optimization_level=off)
            folded += (len(done) - proto.ByteSize()) / 2**20
    return {"optimizers": seconds, "folded": folded}


def session(model: bytes, settings: SessionSettings, providers: Any, **options: Any) -> float:
    """Seconds that a session takes, the best of three."""
    times = []
    for _ in range(3):
        given = settings.make_options()
        for name, value in options.items():
            setattr(given, name, value)
        start = time.process_time()
        ort.InferenceSession(model, given, providers)
        times.append(time.process_time() - start)
    return min(times)


def first_call_in(layers: int, cache: str | bool) -> dict[str, Any]:
    """What ``first_call`` finds in a new process."""
    return in_a_process(["--only", json.dumps([layers, cache])], threads=1)


def a_round(layers: int) -> dict[str, dict[str, Any]]:
    """The variants, and the KiB that are kept."""
    with tempfile.TemporaryDirectory() as folder:
        found = {name: first_call_in(layers, False if name == "off" else folder) for name in VARIANTS}
        found["kept"] = {"KiB": sum(path.stat().st_size for path in Path(folder).iterdir()) / 2**10}
    digests = {found[name]["gradients"] for name in VARIANTS}
    if len(digests) > 1 or found["found"]["lowered"] or not found["empty"]["lowered"]:
        raise SystemExit(f"{layers} layers: wrong values, or a cache that does not hold: {found}")
    return found


def rows(depths: list[int], rounds: int) -> Iterator[list[str]]:
    """A line of the table for every depth."""
    for layers in depths:
        each = [a_round(layers) for _ in range(rounds)]

        def middle(of: Callable[[dict[str, dict[str, Any]]], float], each: list[Any] = each) -> float:
            return statistics.median(map(of, each))

        row = [str(layers), f"{middle(lambda r: r['off']['first']):.2f}"]
        row += [
            f"{middle(lambda r, n=name, part=part: r[n][part] / r['off'][part]):.2f}"
            for part in ("first", "backend")
            for name in ("empty", "found")
        ]
        row.append(f"{middle(lambda r: r['off']['backend'] / r['off']['first']):.2f}")
        row.append(f"{middle(lambda r: r['off']['optimizers'] / r['off']['first']):.3f}")
        row += [f"{middle(lambda r: r['kept']['KiB']):.0f}", f"{middle(lambda r: r['off']['folded']):.1f}"]
        print(" | ".join(row), flush=True)
        yield row


COLUMNS = [
    *("layers", "off, s", "first call: empty / off", "found / off", "backend: empty / off", "found / off"),
    *("backend / first call", "optimizers / first call", "kept, KiB", "folded, MiB"),
]


def main() -> None:
    """Measures every depth; with ``--only`` one first call, for the process above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--write", type=Path, help="file for the table, beside the screen")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if options.only:
        print(json.dumps(first_call(*options.only)))
        return
    versions = ("torch", "onnxruntime-gpu")
    table = rows(options.layers, options.rounds)
    show(page("What compiled graphs on disk save", __doc__ or "", versions, COLUMNS, table), options.write)


if __name__ == "__main__":
    main()
