"""What runs an ONNX model, or a part of one: ONNX Runtime, or the evaluator of the onnx package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import onnx
import onnx_ir as ir
import torch

from dort_compare.errors import ExecutionError
from dort_compare.runtime.kernels import with_kernels
from dort_compare.runtime.providers import Provider
from dort_compare.runtime.session import make_session
from dort_compare.trace.as_it_is import PART_AS_IT_IS
from dort_compare.trace.onnx_evaluator import EvaluatorSession


class Engine(Protocol):
    """Runs a model on tensors and returns the values named, on the CPU."""

    def __call__(
        self, model: onnx.ModelProto, feeds: Mapping[str, torch.Tensor], wanted: Sequence[str]
    ) -> list[torch.Tensor]: ...


def ort_engine(providers: Sequence[Provider]) -> Engine:
    """ONNX Runtime without optimizations; where it lacks bfloat16 kernels, float32 and casts around them."""
    on_cuda = any("CUDA" in name for name, _ in providers)
    device = torch.device("cuda" if on_cuda else "cpu")

    def run(model: onnx.ModelProto, feeds: Mapping[str, torch.Tensor], wanted: Sequence[str]) -> list[torch.Tensor]:
        try:
            session = make_session(model, PART_AS_IT_IS, providers)
        except ExecutionError:
            if not _holds_bfloat16(model, feeds):
                raise
            for i, node in enumerate(model.graph.node):
                node.name = f"node{i}"
            typed = ir.from_proto(onnx.shape_inference.infer_shapes(model))
            session = make_session(with_kernels(typed, providers, [ir.DataType.BFLOAT16]), PART_AS_IT_IS, providers)
        found = session.run({name: t.to(device) for name, t in feeds.items()}, dict.fromkeys(wanted, device))
        return [tensor.cpu() for tensor in found]

    return run


def evaluator_engine(
    model: onnx.ModelProto, feeds: Mapping[str, torch.Tensor], wanted: Sequence[str]
) -> list[torch.Tensor]:
    """The reference evaluator: numpy, slow, and no code that it shares with ONNX Runtime."""
    return EvaluatorSession(model).run(feeds, dict.fromkeys(wanted, torch.device("cpu")))


def _holds_bfloat16(model: onnx.ModelProto, feeds: Mapping[str, torch.Tensor]) -> bool:
    constants = any(t.data_type == onnx.TensorProto.BFLOAT16 for t in model.graph.initializer)
    casts = any(
        attribute.name in ("to", "dtype") and attribute.i == onnx.TensorProto.BFLOAT16
        for node in model.graph.node
        for attribute in node.attribute
    )
    return constants or casts or any(tensor.dtype == torch.bfloat16 for tensor in feeds.values())
