"""What bounds a step: how much of it ONNX Runtime takes for products, and what would be reached without the rest.

    python benchmarks/bound.py --write benchmarks/results/bound.md

Eager and the graphs of the compiled model, whose sessions profile their kernels, take turns; eager's begins with a step
that is not timed, so that it does not pay for the threads and caches that the other left. Times are medians over the
rounds. *Products* are matrix products and convolutions. *Rate* is the arithmetic of the matrix products, 2 M N K, over
their time, and *torch's rate* that of torch for matrix products of the same sizes, each in a loop of its own. *Eager /
products* is what eager would take of a model that computes its products and nothing else: no rewrite of the graph goes
beyond it, unless it takes away products.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import re
import statistics
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from pages import flags, page, show
from step import loss_of, step_of
from step_models import FAMILIES, PARTS_AND_FAMILIES, model_of

from dort_compare import DebugBackend
from dort_compare.compiled import Compiled
from dort_compare.trace.call import Call

PRODUCTS = ("MatMul", "FusedMatMul", "Gemm", "Conv", "FusedConv", "ConvTranspose")
MATRIX_PRODUCTS = PRODUCTS[:3]
PRODUCT_RUNS = 9
COLUMNS = ("part", "size", "mode", "eager, ms", "kernels, ms", "products, ms", "of the kernels", "rate, GFLOP/s",
           "torch's rate", "eager / kernels", "eager / products")  # fmt: skip
Event = Mapping[str, Any]
Round = Sequence[Sequence[Event]]


def measured(part: str, size: str, mode: str, rounds: int, folder: Path) -> tuple[list[float], list[Round]]:
    """Seconds of eager steps, and the events of kernels of each round, graph by graph."""
    batch, length = map(int, size.split("x"))
    model, inputs = model_of(part, 1, (batch, length))
    step, trains = step_of(model, model, inputs, mode), mode == "train"
    call = Call(inputs, backward=trains, loss=loss_of if trains else None)
    profiling = {"enable_profiling": True, "profile_file_prefix": str(folder / "profile")}
    backend = DebugBackend(rewrites=True, session_options=profiling)
    compiled = Compiled(model, backend)
    compiled.run(call)
    eager: list[float] = []
    for _ in range(rounds):
        step()
        start = time.perf_counter()
        step()
        eager.append(time.perf_counter() - start)
        compiled.run(call)
    sessions = [graph.program._session.onnx_session for graph in backend.graphs if graph.program._session]
    runs = [runs_in(Path(session.end_profiling()))[1:] for session in sessions]
    return eager, list(zip(*runs, strict=True))


def runs_in(profile: Path) -> list[list[Event]]:
    """The kernels of each run of a session."""
    events = sorted(json.loads(profile.read_text()), key=lambda event: event["ts"])
    runs: list[list[Event]] = []
    for event in events:
        if event["name"] == "model_run":
            runs.append([])
        elif event.get("cat") == "Node" and event["name"].endswith("_kernel_time") and runs:
            runs[-1].append(event)
    return runs


def outermost(events: Sequence[Event]) -> Iterator[Event]:
    """The events of one graph without what ran within another, as the nodes of a Scan do."""
    end = 0
    for event in events:
        if event["ts"] >= end:
            end = event["ts"] + event["dur"]
            yield event


@dataclass(frozen=True)
class Product:
    """The sizes of a matrix product, or of ``batch`` products."""

    batch: int
    m: int
    n: int
    k: int

    @classmethod
    def of(cls, event: Event) -> Product:
        """From the sizes of the first operand, which may be transposed, and of the result."""
        first, result = (next(iter(shape.values())) for shape in
                         (event["args"]["input_type_shape"][0], event["args"]["output_type_shape"][0]))  # fmt: skip
        *batch, m, n = result
        return cls(math.prod(batch), m, n, math.prod(first) // (math.prod(batch) * m))

    @property
    def operations(self) -> float:
        """2 M N K of each."""
        return 2.0 * self.batch * self.m * self.n * self.k


@cache
def seconds_of_torch(product: Product) -> float:
    """What torch takes for a product of that size, the median of several."""
    left, right = torch.randn(product.batch, product.m, product.k), torch.randn(product.batch, product.k, product.n)
    times = []
    for _ in range(PRODUCT_RUNS):
        start = time.perf_counter()
        torch.bmm(left, right) if product.batch > 1 else torch.mm(left[0], right[0])
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def row(part: str, size: str, mode: str, eager: Sequence[float], rounds: Sequence[Round]) -> list[str]:
    """A line of the table."""
    times: dict[str, list[float]] = defaultdict(list)
    for graphs in rounds:
        products = [event for event in itertools.chain(*graphs) if event["args"]["op_name"] in PRODUCTS]
        matrices = [event for event in products if event["args"]["op_name"] in MATRIX_PRODUCTS]
        times["kernels"].append(sum(event["dur"] for events in graphs for event in outermost(events)) / 1e6)
        times["products"].append(sum(event["dur"] for event in products) / 1e6)
        took = sum(event["dur"] for event in matrices) / 1e6
        sizes = [Product.of(event) for event in matrices]
        arithmetic = sum(size.operations for size in sizes) / 1e9
        times["rate"].append(arithmetic / took if took else 0.0)
        times["of torch"].append(arithmetic / sum(map(seconds_of_torch, sizes)) if sizes else 0.0)
    middle = {name: statistics.median(found) for name, found in times.items()}
    ratios = {
        name: statistics.median(e / t for e, t in zip(eager, times[name], strict=True))
        for name in ("kernels", "products")
    }
    return [
        part,
        f"({re.sub('x', ', ', size)})",
        mode,
        *(f"{seconds * 1e3:.1f}" for seconds in (statistics.median(eager), middle["kernels"], middle["products"])),
        f"{100 * middle['products'] / middle['kernels']:.0f} %",
        f"{middle['rate']:.0f}",
        f"{middle['of torch']:.0f}",
        f"{ratios['kernels']:.2f}",
        f"{ratios['products']:.2f}",
    ]


def rows(options: argparse.Namespace) -> Iterator[list[str]]:
    """A line for every part and mode."""
    for part in options.parts:
        size = FAMILIES.get(part, options.size)
        for mode in ("infer", "train"):
            with tempfile.TemporaryDirectory() as folder:
                yield row(part, size, mode, *measured(part, size, mode, options.rounds, Path(folder)))


def main() -> None:
    """Measures every part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, parents=[flags()]
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS_AND_FAMILIES, default=list(PARTS_AND_FAMILIES))
    parser.add_argument("--size", default="2x1024", metavar="BATCHxSEQ", help="of Llama's parts")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    title = f"What bounds a step, float32, {options.threads} threads"
    show(page(title, __doc__ or "", ("torch", "onnxruntime-gpu"), COLUMNS, rows(options)), options.write)


if __name__ == "__main__":
    main()
