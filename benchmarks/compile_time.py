"""How the time to compile grows with the graph, stage by stage, with and without nodes that fall back to eager torch.

    python benchmarks/compile_time.py --nodes 250 1000 4000

The graphs are chains of residual blocks that no part of torch.compile has traced: what is measured is this project's
own part, and what it asks of ONNX Runtime. Beside "cut", which parts what falls back from the rest, stands what
torch's CapabilityBasedPartitioner takes for the same. Growth is the time of a node, over that in the graph before it:
1 where the time is linear.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import create_op_support

from dort_compare import DebugBackend
from dort_compare.backends import building, partition
from dort_compare.runtime import program

aten = torch.ops.aten
WIDTH = 4
STAGES: dict[str, tuple[ModuleType, str]] = {
    "lower": (building, "lower"),
    "kernels": (program, "with_kernels"),
    "session": (program, "make_session"),
    "survey": (partition, "survey"),
    "lacking": (partition, "missing_kernels"),
    "cut": (partition, "split_graph"),
}
PARTITIONER = "torch's cut"


@torch.library.custom_op("dort_benchmark::foreign", mutates_args=())
def foreign(x: torch.Tensor) -> torch.Tensor:
    """An op that ONNX has no word for."""
    return x.clone()


foreign.register_fake(torch.empty_like)


def chain(nodes: int, every: int) -> fx.GraphModule:
    """About ``nodes`` calls, five a block with a weight of its own; after ``every`` calls one without lowering."""
    graph = fx.Graph()
    mode = FakeTensorMode()
    with mode:
        fake, weight = torch.empty(2, WIDTH), torch.empty(WIDTH, WIDTH)
    weights = [_placeholder(graph, f"weight_{i}", weight) for i in range(nodes // 5)]
    x = _placeholder(graph, "x", fake)
    call = functools.partial(_call, graph, fake)
    written = 0
    for w in weights:
        y = call(aten.mm.default, x, w)
        y = call(aten.tanh.default, y)
        y = call(aten.mul.Tensor, y, 0.5)
        y = call(aten.add.Tensor, y, x)
        x = call(aten.sigmoid.default, y)
        written += 5
        if every and written % every == 0:
            x = call(torch.ops.dort_benchmark.foreign.default, x)
    graph.output((x,))
    return fx.GraphModule(torch.nn.Module(), graph)


def _placeholder(graph: fx.Graph, name: str, fake: torch.Tensor) -> fx.Node:
    node = graph.placeholder(name)
    node.meta["val"] = fake
    return node


def _call(graph: fx.Graph, fake: torch.Tensor, target: Callable[..., Any], *args: Any) -> fx.Node:
    node = graph.call_function(target, args)
    node.meta["val"] = fake
    return node


@contextlib.contextmanager
def timed(times: dict[str, float]) -> Iterator[None]:
    """Adds up what each stage takes."""
    originals = {stage: getattr(*place) for stage, place in STAGES.items()}

    def wrapped(stage: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            try:
                return originals[stage](*args, **kwargs)
            finally:
                times[stage] = times.get(stage, 0.0) + time.process_time() - start

        return call

    for stage, place in STAGES.items():
        setattr(*place, wrapped(stage))
    try:
        yield
    finally:
        for stage, place in STAGES.items():
            setattr(*place, originals[stage])


def measure(nodes: int, every: int) -> dict[str, float]:
    """CPU seconds to compile one graph, by stage and in all."""
    graph_module = chain(nodes, every)
    inputs = [torch.zeros(*n.meta["val"].shape) for n in graph_module.graph.nodes if n.op == "placeholder"]
    times: dict[str, float] = {}
    start = time.process_time()
    with timed(times):
        boxed = DebugBackend().compile_graph(graph_module, inputs, phase="inference")
    times["all"] = time.process_time() - start
    start = time.process_time()
    boxed(inputs)
    times["first run"] = time.process_time() - start
    if every:
        times[PARTITIONER] = partitioned(chain(nodes, every))
    return times


def partitioned(graph_module: fx.GraphModule) -> float:
    """CPU seconds of torch's partitioner."""
    is_ours = create_op_support(lambda _, node: node.target is not torch.ops.dort_benchmark.foreign.default)
    start = time.process_time()
    CapabilityBasedPartitioner(graph_module, is_ours, allows_single_node_partition=True).partition_and_fuse()
    return time.process_time() - start


def table(sizes: Sequence[int], every: int) -> None:
    """Prints seconds by stage for growing graphs, and how much more a node costs than in the graph before."""
    stages = [*STAGES, *([PARTITIONER] if every else []), "all", "first run"]
    title = f"one of {every} nodes falls back" if every else "nothing falls back"
    print(f"\n{title}: CPU seconds (growth of the time a node)")
    print(f"{'nodes':>7}" + "".join(f"{stage:>15}" for stage in stages))
    before: dict[str, float] = {}
    for nodes in sizes:
        times = measure(nodes, every)
        each = {stage: seconds / nodes for stage, seconds in times.items()}
        cells = [f"{times.get(s, 0):.3f}" + (f" ({each[s] / before[s]:.1f})" if s in before else "") for s in stages]
        print(f"{nodes:>7}" + "".join(f"{cell:>15}" for cell in cells), flush=True)
        before = each


def main() -> None:
    """Prints one table without fallbacks and one with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[250, 1000, 4000])
    parser.add_argument("--every", type=int, default=50, help="one of so many nodes falls back, in the second table")
    arguments = parser.parse_args()
    logging.getLogger("dort_compare").setLevel(logging.ERROR)
    measure(100, 10)
    for every in (0, arguments.every):
        table(arguments.nodes, every)


if __name__ == "__main__":
    main()
