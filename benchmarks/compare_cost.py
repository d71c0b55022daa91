"""What a comparison costs: its time and memory over those of one eager training step, and over other tools' a value.

    python benchmarks/compare_cost.py --threads 1 --write docs/compare-cost.md

Every figure comes from a process of its own, and what is divided comes from one run. *Step* is one forward and backward
pass of the uncompiled model, the median of several, half of them before the comparison and half after it. *Whole* is
``compare(model, inputs, backward=True)``. *Proper* is that without what torch.compile, the lowering and the making of
the two ONNX Runtime sessions take. *Executions* are the four executions of the graphs and the measuring of their values
alone. *Where it goes* shares out the whole. Seconds are those of the processor with one thread, else those of the
clock. The comparison keeps the memory of large values that it frees (dort_compare/comparison/heap.py); the steps before
and after it have what torch and glibc do. Memory is the highest resident size of the process less its resident size
when all is imported and the model made; the steps and the comparison run in two processes.

The other tools get the forward pass alone, which is all that they compare. ``verify_onnx_program`` is given ONNX
Runtime's CPU provider alone, as otherwise most of its time goes into loading CUDA's libraries, once a value. *One run
by torch* is one of the forward graph on torch's kernels, bare: the executions are four, one of them in float64.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import torch
from pages import command, flags, processor
from processes import in_a_process, peak, resident

from dort_compare import DebugBackend, compare
from dort_compare.backends import CompiledGraph
from dort_compare.comparison.values import Examination
from dort_compare.compiled import Compiled, graph_run, run_compiled
from dort_compare.measure.before_onnx.tracing import Tracing
from dort_compare.measure.graph_rows import graph_rows
from dort_compare.measure.judging import Judge
from dort_compare.models import build
from dort_compare.models.llama import LlamaConfig
from dort_compare.runtime.program import Program
from dort_compare.runtime.providers import once
from dort_compare.trace.call import Call
from dort_compare.trace.local_run import LocalRun
from dort_compare.trace.modules import run_module
from dort_compare.trace.onnx_run import OnnxRun

BATCH = 2
STEPS = 3
LIMITS: Mapping[str, float] = {
    "time": 12,
    "memory": 3,
    "growth": 9,
    "verify_onnx_program": 50,
    "compare_onnx_execution": 10,
}
SHARES = (
    "torch.compile, lowering, sessions",
    "the model that is shipped",
    "the graphs on torch's kernels, module by module",
    "torch and float64, value by value",
    "ONNX on its own values",
    "ONNX on torch's operands",
    "measuring and judging values",
    "plain eager, its modules watched, and the rest",
)
TIMED: Mapping[str, tuple[type, str]] = {
    "compiled": (Compiled, "run"),
    "shipped": (Program, "computed"),
    "traced": (Tracing, "_run"),
    "executions": (Examination, "values"),
    "judged": (Judge, "row"),
    "own": (OnnxRun, "values"),
    "local": (LocalRun, "values"),
}
Result = dict[str, float]
Claim = tuple[str, str, str, float, float | None]
"""What, its sizes, the figures, their ratio, and the limit, if it has one; below zero one that is to be passed."""


def step_and_comparison(layers: int, seq: int) -> Result:
    """Seconds of an eager step, and of a comparison and its parts."""
    model, inputs = build("model", LlamaConfig(layers=layers), batch=BATCH, seq=seq)
    parameters, call = dict(model.named_parameters()), Call(inputs, backward=True)
    run_module(model, parameters, call)
    steps = [seconds(run_module, model, parameters, call) for _ in range(STEPS)]
    times: Result = {}
    with contextlib.ExitStack() as stack:
        for name, (place, function) in TIMED.items():
            stack.enter_context(timed(times, name, place, function, first=name == "compiled"))
        start = now()
        report = compare(model, inputs, backward=True)
        whole = now() - start
    steps += [seconds(run_module, model, parameters, call) for _ in range(STEPS)]
    proper = whole - times["compiled"] + times["shipped"]
    cost = {"step": statistics.median(steps), "whole": whole, "proper": proper, "executions": times["executions"]}
    return cost | {"values": len(report.rows)} | shares(times, whole)


def shares(times: Result, whole: float) -> Result:
    """The seconds of ``whole`` by what they went into."""
    compiling = times["compiled"] - times["shipped"]
    in_torch = times["executions"] - sum(times[name] for name in ("judged", "own", "local"))
    found = [compiling, times["shipped"], times["traced"], in_torch, times["own"], times["local"], times["judged"]]
    return dict(zip(SHARES, [*found, whole - sum(found)], strict=True))


def peak_of_steps(layers: int, seq: int) -> Result:
    """Bytes that eager training steps take."""
    model, inputs = build("model", LlamaConfig(layers=layers), batch=BATCH, seq=seq)
    before = resident()
    for _ in range(STEPS):
        run_module(model, dict(model.named_parameters()), Call(inputs, backward=True))
    return {"peak": peak() - before}


def peak_of_comparison(layers: int, seq: int) -> Result:
    """Bytes that a comparison takes."""
    model, inputs = build("model", LlamaConfig(layers=layers), batch=BATCH, seq=seq)
    before = resident()
    compare(model, inputs, backward=True)
    return {"peak": peak() - before}


def ours_of_inference(layers: int, seq: int) -> Result:
    """Seconds a value of the forward graph: executed four ways and measured, and run once by torch."""
    model, inputs = build("model", LlamaConfig(layers=layers), batch=BATCH, seq=seq)
    (graph,) = inference_graphs(model, inputs)
    run = graph_run(graph)
    values = len(list(graph_rows(run)))
    four_ways = min(seconds(lambda: list(graph_rows(graph_run(graph)))) for _ in range(STEPS))
    with torch.no_grad():
        once = min(seconds(run.graph_module, *run.inputs.values()) for _ in range(STEPS))
    return {"a value": four_ways / values, "once": once / values, "values": values}


def verify_onnx_program(layers: int, seq: int) -> Result:
    """Seconds a value of torch.onnx.verification on the program that torch.onnx.export makes."""
    import onnxruntime as ort  # noqa: PLC0415
    from torch.onnx import verification  # noqa: PLC0415

    plain = ort.SessionOptions

    def with_our_threads() -> ort.SessionOptions:
        options = plain()
        options.intra_op_num_threads = torch.get_num_threads()
        return options

    ort.get_available_providers, ort.SessionOptions = lambda: ["CPUExecutionProvider"], with_our_threads
    model, inputs = build("model", LlamaConfig(layers=layers), batch=BATCH, seq=seq)
    program = torch.onnx.export(model, inputs, dynamo=True, verbose=False)
    assert program is not None
    start = now()
    found = verification.verify_onnx_program(program, inputs, compare_intermediates=True)
    return {"a value": (now() - start) / len(found), "values": len(found)}


def compare_onnx_execution(layers: int, seq: int) -> Result:
    """Seconds a value of onnx-array-api, which runs two models in Python: ours of the graph, and the same again."""
    from onnx_array_api.reference import compare_onnx_execution as compare_models  # noqa: PLC0415

    model, inputs = build("model", LlamaConfig(layers=layers), batch=BATCH, seq=seq)
    (graph,) = inference_graphs(model, inputs)
    proto, named = graph.onnx_model, graph.named_inputs()
    feeds = {value.name: torch.as_tensor(named[value.name]).detach().numpy() for value in proto.graph.input}
    start = now()
    values = len(compare_models(proto, proto, inputs=(feeds, feeds))[0])
    return {"a value": (now() - start) / values, "values": values}


MEASURES: dict[str, Callable[[int, int], Result]] = {
    measure.__name__: measure
    for measure in (
        step_and_comparison,
        peak_of_steps,
        peak_of_comparison,
        ours_of_inference,
        verify_onnx_program,
        compare_onnx_execution,
    )
}


def inference_graphs(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> list[CompiledGraph]:
    """The graphs of a model without gradients, compiled and run."""
    backend = DebugBackend(providers=["cpu"], session_options=once())
    run_compiled(model, Call(inputs), backend)
    return backend.graphs


def now() -> float:
    """Seconds of the processor where one thread works, which nothing else can lengthen; else of the clock."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def seconds(function: Callable[..., Any], *args: Any) -> float:
    """What one call takes."""
    start = now()
    function(*args)
    return now() - start


@contextlib.contextmanager
def timed(times: Result, name: str, place: type, function: str, *, first: bool) -> Iterator[None]:
    """Adds up, as ``name``, what the calls of a function take, or only the first of them."""
    original = getattr(place, function)

    def call(*args: Any, **kwargs: Any) -> Any:
        start = now()
        try:
            return original(*args, **kwargs)
        finally:
            if not first or name not in times:
                times[name] = times.get(name, 0.0) + now() - start

    setattr(place, function, call)
    try:
        yield
    finally:
        setattr(place, function, original)


def result_of(measure: Callable[[int, int], Result], layers: int, seq: int, threads: int) -> Result:
    """The result of ``measure`` in a new process, also printed."""
    arguments = ["--only", measure.__name__, str(layers), str(seq), "--threads", str(threads)]
    result: Result = in_a_process(arguments, threads)
    print(f"{measure.__name__:24s} layers {layers:<3} seq {seq:<5}", figures(result), flush=True)
    return result


def figures(result: Result) -> str:
    """A result in one line."""
    return ", ".join(f"{name} {value / 2**20:.0f} MiB" if name == "peak" else f"{name} {value:.4g}"
                     for name, value in result.items())  # fmt: skip


def measured(arguments: argparse.Namespace) -> tuple[list[Claim], Result]:
    """Every claim, and where the time of the first goes."""
    run = lambda measure, layers, seq: result_of(measure, layers, seq, arguments.threads)  # noqa: E731
    layers, seq = arguments.layers, arguments.seq
    size = f"{layers} layer{'s' if layers > 1 else ''}, ({BATCH}, {seq})"
    cost = run(step_and_comparison, layers, seq)
    rows: list[Claim] = [
        (f"{part} / step, time", size, f"{cost[part]:.2f} s / {cost['step']:.3f} s", cost[part] / cost["step"],
         LIMITS["time"])
        for part in ("executions", "proper", "whole")
    ]  # fmt: skip
    theirs, ours = run(peak_of_steps, layers, seq)["peak"], run(peak_of_comparison, layers, seq)["peak"]
    sizes = f"{ours / 2**20:.0f} MiB / {theirs / 2**20:.0f} MiB"
    rows.append(("whole / step, memory", size, sizes, ours / theirs, LIMITS["memory"]))
    few, many = arguments.growth
    first, last = (run(step_and_comparison, n, arguments.growth_seq) for n in (few, many))
    size = f"{few} to {many} layers, ({BATCH}, {arguments.growth_seq})"
    for part in ("executions", "proper", "whole"):
        times = f"{last[part]:.1f} s / {first[part]:.1f} s"
        rows.append((f"growth of {part}", size, times, last[part] / first[part], LIMITS["growth"]))
    layers, seq = arguments.peer_layers, arguments.peer_seq
    ours = run(ours_of_inference, layers, seq)
    size = f"{layers} layers, ({BATCH}, {seq}), forward"
    for peer in (verify_onnx_program, compare_onnx_execution):
        theirs = run(peer, layers, seq)["a value"]
        for what, key, limit in (("executions", "a value", -LIMITS[peer.__name__]), ("one run by torch", "once", None)):
            times = f"{theirs * 1e3:.2f} ms / {ours[key] * 1e3:.2f} ms"
            rows.append((f"{peer.__name__} / {what}, a value", size, times, theirs / ours[key], limit))
    return rows, cost


def page(rows: Sequence[Claim], cost: Result, threads: int) -> str:
    """The figures as a Markdown page."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "onnxruntime-gpu", "onnx-array-api"))
    introduction = (__doc__ or "").split("\n\n", 2)[2]
    lines = [
        "# What a comparison costs",
        "",
        f"`{command()}`, {time.strftime('%Y-%m-%d')}, {processor()}, {threads} threads, {versions}. "
        "The Llama model part, float32, native.",
        "",
        introduction,
        "| what | size | figures | ratio | limit | |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for what, size, text, ratio, limit in rows:
        lines.append(f"| {what} | {size} | {text} | {ratio:.1f} | {judged(ratio, limit)} |")
    lines += ["", f"## Where it goes, {rows[0][1]}", "", "| what | seconds | steps |", "| --- | --- | --- |"]
    lines += [f"| {name} | {cost[name]:.2f} | {cost[name] / cost['step']:.1f} |" for name in SHARES]
    return "\n".join([*lines, ""])


def judged(ratio: float, limit: float | None) -> str:
    """The limit of a ratio, and whether it is kept: two columns."""
    if limit is None:
        return "none |"
    kept = ratio >= -limit if limit < 0 else ratio <= limit
    return f"at {'least' if limit < 0 else 'most'} {abs(limit):g} | {'kept' if kept else 'missed'}"


def main() -> None:
    """Measures everything, or one thing in this process."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, parents=[flags()]
    )
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--growth", type=int, nargs=2, default=[4, 32], help="layers")
    parser.add_argument("--growth-seq", type=int, default=32)
    parser.add_argument("--peer-layers", type=int, default=2)
    parser.add_argument("--peer-seq", type=int, default=64)
    parser.add_argument("--only", nargs=3, metavar=("MEASURE", "LAYERS", "SEQ"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.only:
        warnings.simplefilter("ignore")
        name, layers, seq = arguments.only
        print(json.dumps(MEASURES[name](int(layers), int(seq))))
        return
    text = page(*measured(arguments), arguments.threads)
    print(text)
    if arguments.write:
        arguments.write.write_text(text)


if __name__ == "__main__":
    main()
