"""An execution of an ONNX model a piece at a time, each value freed after its last reader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir
import torch

from dort_compare.runtime.constants import as_torch
from dort_compare.trace.dataflow import Dataflow, Node
from dort_compare.trace.engine import Engine, run_nodes

NODES = 512
"""Nodes that run together at most."""
BYTES = 2**27
"""Bytes of results that one piece should not make."""


class Execution:
    """The values of a model that are alive."""

    def __init__(self, flow: Dataflow, inputs: Mapping[str, torch.Tensor], engine: Engine) -> None:
        self.flow = flow
        self.live = dict(inputs)
        self._engine = engine

    def advance(self, nodes: Sequence[Node]) -> dict[str, torch.Tensor]:
        """Runs ``nodes`` on the live values and returns their tensors."""
        wanted = [name for node in nodes for name in self.flow.tensors_of(node)]
        found = run_nodes(self._engine, self.flow, nodes, self.live, wanted)
        self.live.update(found)
        return found

    def drop(self, names: Sequence[str]) -> None:
        for name in names:
            self.live.pop(name, None)


def constant(flow: Dataflow, name: str) -> torch.Tensor:
    """A constant of a model."""
    return as_torch(ir.serde.deserialize_tensor(flow.constants[name]))


def streamed(flow: Dataflow, inputs: Mapping[str, torch.Tensor], engine: Engine) -> Iterator[tuple[str, torch.Tensor]]:
    """Every numeric value of ``flow`` once: inputs, constants, results in order; those alive are few."""
    yield from inputs.items()
    for name in flow.constants:
        if name not in flow.opaque:
            yield name, constant(flow, name)
    last = {name: node.index for node in flow.nodes for name in flow.reads(node)}
    run, start, size = Execution(flow, inputs, engine), 0, 16
    while start < len(flow.nodes):
        nodes = flow.nodes[start : start + size]
        found = run.advance(nodes)
        yield from found.items()
        start += len(nodes)
        run.drop([name for name in run.live if last.get(name, -1) < start])
        made = sum(tensor.nbytes for tensor in found.values())
        size = max(1, min(NODES, 2 * size, int(size * BYTES / max(made, 1))))
