"""What the lowering costs: milliseconds a node, how they grow, and what ``torch.onnx.export`` takes of the same model.

    python benchmarks/lowering.py --write benchmarks/results/lowering.md

The graphs are the forward and backward graphs of a Llama model of so many layers, as torch.compile hands them over.
*Lower* is the lowering with its check, *rewrite* the rewrites of the fast backend, *session* the session of ONNX
Runtime with the serialization before it; each is time of the processor over the calls in the FX graphs, the least of
three compilations, for pauses of the garbage collector fall on any. *Growth* is the time of a node, all stages, over
that in the line above. ``torch.onnx.export`` exports the forward pass alone, all of it timed, over the calls in its
graph.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import torch
from pages import page, show

from dort_compare.backends import DebugBackend, building
from dort_compare.compiled import run_compiled
from dort_compare.models import build
from dort_compare.models.llama import LlamaConfig
from dort_compare.runtime import program
from dort_compare.trace.call import Call

STAGES: dict[str, tuple[ModuleType, str]] = {
    "lower": (building, "lower"),
    "rewrite": (program, "rewritten"),
    "session": (program, "make_session"),
}
BATCH, SEQ = 1, 16
COMPILATIONS = 3


@contextlib.contextmanager
def timed() -> Iterator[dict[str, float]]:
    """Within it the seconds of every stage add up."""
    times = dict.fromkeys(STAGES, 0.0)
    originals = {stage: getattr(*place) for stage, place in STAGES.items()}

    def watched(stage: str) -> object:
        def call(*args: object, **kwargs: object) -> object:
            start = time.process_time()
            try:
                return originals[stage](*args, **kwargs)
            finally:
                times[stage] += time.process_time() - start

        return call

    for stage, place in STAGES.items():
        setattr(*place, watched(stage))
    try:
        yield times
    finally:
        for stage, place in STAGES.items():
            setattr(*place, originals[stage])


def ours(layers: int) -> tuple[int, dict[str, float]]:
    """The calls in all graphs, and seconds by stage, the least of several compilations."""
    compilations = [compiled(layers) for _ in range(COMPILATIONS)]
    return compilations[0][0], {stage: min(times[stage] for _, times in compilations) for stage in STAGES}


def compiled(layers: int) -> tuple[int, dict[str, float]]:
    """The calls in all graphs, and seconds by stage."""
    model, inputs = build("model", LlamaConfig(layers=layers), batch=BATCH, seq=SEQ)
    backend = DebugBackend(rewrites=True)
    with timed() as times:
        run_compiled(model, Call(inputs, backward=True), backend)
    graphs = [graph.graph_module.graph for graph in backend.graphs]
    return sum(node.op == "call_function" for graph in graphs for node in graph.nodes), times


def torch_export(layers: int) -> tuple[int, float]:
    """The calls in the exported graph, and seconds."""
    model, inputs = build("model", LlamaConfig(layers=layers), batch=BATCH, seq=SEQ)
    start = time.process_time()
    exported = torch.onnx.export(model, inputs, dynamo=True, verbose=False)
    seconds = time.process_time() - start
    assert exported is not None
    assert exported.exported_program is not None
    return sum(node.op == "call_function" for node in exported.exported_program.graph.nodes), seconds


def rows(depths: list[int]) -> Iterator[list[str]]:
    """A line of the table for every depth."""
    before = None
    for layers in depths:
        nodes, times = ours(layers)
        their_nodes, their_seconds = torch_export(layers)
        each = sum(times.values()) / nodes * 1e3
        theirs = their_seconds / their_nodes * 1e3
        stages = [f"{seconds / nodes * 1e3:.3f}" for seconds in times.values()]
        growth = f"{each / before:.2f}" if before else ""
        row = [str(layers), str(nodes), *stages, f"{each:.3f}", growth, str(their_nodes), f"{theirs:.2f}"]
        print(" | ".join([*row, f"{theirs / each:.1f}"]), flush=True)
        yield [*row, f"{theirs / each:.1f}"]
        before = each


COLUMNS = [
    *("layers", "nodes", *STAGES, "ms a node", "growth"),
    *("torch.onnx.export: nodes", "ms a node", "over ours"),
]


def main() -> None:
    """Measures every depth, after one that warms up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", nargs="+", type=int, default=[1, 4, 16, 48])
    parser.add_argument("--write", type=Path, help="file for the table, beside the screen")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    compiled(1), torch_export(1)
    versions = ("torch", "onnxscript", "onnxruntime-gpu")
    show(page("What the lowering costs", __doc__ or "", versions, COLUMNS, rows(options.layers)), options.write)


if __name__ == "__main__":
    main()
