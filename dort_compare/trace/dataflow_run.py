"""Some nodes of an ONNX model on their own, and all of it a piece at a time, each value freed after its last reader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import onnx
import onnx_ir as ir
import torch

from dort_compare.errors import DortError
from dort_compare.runtime.constants import as_torch
from dort_compare.trace.dataflow import Dataflow, Node
from dort_compare.trace.engine import Engine
from dort_compare.trace.parts import declared

NODES = 512
"""Nodes that run together at most."""
BYTES = 2**27
"""Bytes of results that one piece should not make."""


def run_nodes(
    engine: Engine,
    flow: Dataflow,
    nodes: Sequence[Node],
    known: Mapping[str, torch.Tensor],
    wanted: Sequence[str],
    replaced: Mapping[str, torch.Tensor] | None = None,
) -> dict[str, torch.Tensor]:
    """Runs some nodes of ``flow`` and returns their results named in ``wanted``.

    What they read is taken from ``replaced``, also where one of them makes it, else from one another, from ``known``
    or from the constants.
    """
    if not wanted:
        return {}
    replaced = replaced or {}
    part = flow.with_opaque(nodes)
    made = {name for node in part for name in node.results if name}
    local = {name: f"{name}\nitself" for name in made if name in replaced}
    model, feeds = _part(flow, part, local), {}
    for name in dict.fromkeys(name for node in part for name in node.operands if name):
        if name in replaced:
            feeds[name] = replaced[name]
        elif name in made:
            continue
        elif name in flow.constants:
            initializer = model.graph.initializer.add()
            initializer.CopyFrom(flow.constants[name])
            initializer.name = name
        else:
            feeds[name] = known[name]
    model.graph.input.extend(declared(name, tensor) for name, tensor in feeds.items())
    results = [local.get(name, name) for name in wanted]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in results)
    try:
        return dict(zip(wanted, engine(model, feeds, results), strict=True))
    except DortError as problem:
        raise type(problem)(f"{flow.title}: {problem}") from None


class DataflowRun:
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
    run, start, size = DataflowRun(flow, inputs, engine), 0, 16
    while start < len(flow.nodes):
        nodes = flow.nodes[start : start + size]
        found = run.advance(nodes)
        yield from found.items()
        start += len(nodes)
        run.drop([name for name in run.live if last.get(name, -1) < start])
        made = sum(tensor.nbytes for tensor in found.values())
        size = max(1, min(NODES, 2 * size, int(size * BYTES / max(made, 1))))


def _part(flow: Dataflow, nodes: Sequence[Node], local: Mapping[str, str]) -> onnx.ModelProto:
    model = onnx.ModelProto(ir_version=flow.proto.ir_version, producer_name=flow.proto.producer_name)
    model.opset_import.extend(flow.proto.opset_import)
    model.functions.extend(flow.proto.functions)
    model.graph.name = "part"
    for node in nodes:
        proto = model.graph.node.add()
        proto.CopyFrom(node.proto)
        for i, name in enumerate(proto.output):
            proto.output[i] = local.get(name, name)
    return model
