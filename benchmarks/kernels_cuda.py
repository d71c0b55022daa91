"""Which kernels a step on a GPU spends its time in, by backend.

    python benchmarks/kernels_cuda.py --mode train --precision bfloat16

One step of the Llama that ``step_cuda.py`` times, after some that are not looked at, under torch's profiler, which sees
ONNX Runtime's kernels too. *Wait* is what the step takes beyond all its kernels: the device had nothing to do.
"""

from __future__ import annotations

import argparse
import statistics
from collections import Counter
from collections.abc import Iterator

import torch
from pages import flags, page, show
from step import BACKENDS, MODES, Step
from step_cuda import PRECISIONS, STEPS, compiled, gpu_flags, name_of_device, step_of, subject, waited_for
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from turns import timed

LONGEST, NAME = 20, 90


def kernels(step: Step) -> tuple[Counter[str], Counter[str]]:
    """Milliseconds and calls of each kernel of one step, by name."""
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        step()
    times: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for event in seen.events():
        if event.device_type == DeviceType.CUDA:
            times[event.name] += event.device_time / 1e3
            calls[event.name] += 1
    return times, calls


def rows(options: argparse.Namespace) -> Iterator[list[str]]:
    """A line of the table for each of the longest kernels of every backend, and what they come to."""
    model, inputs = subject(options.layers, options.hidden, tuple(map(int, options.size.split("x"))))
    for backend in options.backends:
        step = waited_for(
            step_of(compiled(model, backend, options.mode), model, inputs, options.mode, options.precision)
        )
        whole = statistics.median(timed({backend: step}, STEPS, 0.0)[backend]) * 1e3
        times, calls = kernels(step)
        yield [backend, "all kernels", str(calls.total()), f"{times.total():.1f}"]
        yield [backend, "wait", "", f"{max(0.0, whole - times.total()):.1f}"]
        for name, taken in times.most_common(LONGEST):
            yield [backend, f"`{name[:NAME]}`", str(calls[name]), f"{taken:.2f}"]


def main() -> None:
    """Looks at one step of every backend."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, parents=[flags(), gpu_flags()]
    )
    parser.add_argument("--mode", default="train", choices=MODES)
    parser.add_argument("--precision", default="bfloat16", choices=PRECISIONS)
    parser.add_argument("--backends", nargs="+", default=[*BACKENDS], choices=BACKENDS)
    options = parser.parse_args()
    title = f"Kernels of a step on a GPU: {name_of_device()}"
    torch.set_num_threads(options.threads)
    columns = ("backend", "kernel", "calls", "ms")
    show(page(title, __doc__ or "", ("torch", "onnxruntime-gpu"), columns, rows(options)), options.write)


if __name__ == "__main__":
    main()
