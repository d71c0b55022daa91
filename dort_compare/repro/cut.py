"""A part of an ONNX model as a model of its own that numpy can feed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import onnx
import torch
from onnx import TensorProto, helper

from dort_compare.captures import read_by
from dort_compare.trace.parts import Parts, declared

_AS_FLOAT32 = "/float32"


def cut_names(parts: Parts, results: Collection[str], known: Collection[str]) -> tuple[list[int], set[str]]:
    """The nodes that compute ``results`` from other known values, and the names of those that they read."""
    others = set(known) - set(results)
    nodes = parts.between(results, others.__contains__)
    return nodes, {name for i in nodes for name in parts.reads[i] if name in others}


def cut_out(
    whole: onnx.ModelProto,
    nodes: Sequence[int],
    operands: Mapping[str, torch.Tensor],
    results: Mapping[str, torch.Tensor],
) -> onnx.ModelProto:
    """A model of some nodes of ``whole``, whose inputs are ``operands`` and whose outputs are ``results``.

    What is bfloat16, which numpy lacks, goes in and out as float32, named as ``fed_as`` says, and is cast inside.
    """
    kept = [whole.graph.node[i] for i in nodes]
    read = read_by(kept)
    cast_in = [_cast(fed_as(n, t), n, TensorProto.BFLOAT16) for n, t in operands.items() if fed_as(n, t) != n]
    cast_out = [_cast(n, fed_as(n, t), TensorProto.FLOAT) for n, t in results.items() if fed_as(n, t) != n]
    graph = helper.make_graph(
        [*cast_in, *kept, *cast_out],
        "repro",
        [_declared(name, tensor) for name, tensor in operands.items()],
        [_declared(name, tensor) for name, tensor in results.items()],
        [tensor for tensor in whole.graph.initializer if tensor.name in read],
    )
    return helper.make_model(
        graph, ir_version=whole.ir_version, opset_imports=whole.opset_import, functions=whole.functions
    )


def fed_as(name: str, tensor: torch.Tensor) -> str:
    """The name under which a value goes in or out."""
    return name + _AS_FLOAT32 if tensor.dtype == torch.bfloat16 else name


def for_numpy(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors as they go in or out, by those names."""
    return {fed_as(n, t): t.float() if t.dtype == torch.bfloat16 else t for n, t in tensors.items()}


def _declared(name: str, tensor: torch.Tensor) -> onnx.ValueInfoProto:
    ((fed, dense),) = for_numpy({name: tensor.detach()}).items()
    return declared(fed, dense)


def _cast(source: str, target: str, to: int) -> onnx.NodeProto:
    return helper.make_node("Cast", [source], [target], name=f"{target}.cast", to=to)
