"""Constants that are too large for a protobuf: the session takes them as inputs, in the memory that they have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx
import onnx_ir as ir
import onnxruntime as ort
import torch
from onnx_ir.tensor_adapters import TorchTensor, from_torch_dtype, to_torch_dtype

from dort_compare.captures import read_by
from dort_compare.dtypes import in_parts
from dort_compare.protos import copy_of
from dort_compare.runtime.binding import as_ort, dense

LIMIT = 2**30
"""Bytes of constants that a serialized model may hold; a protobuf ends at twice as many."""
LARGE = 2**20
"""Bytes from which on a constant is taken out of a model that holds more than ``LIMIT``."""


def apart(model: ir.Model | onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, torch.Tensor]]:
    """The model with its large constants as further inputs, and those constants, without a copy.

    A model below the limit comes back whole.
    """
    if isinstance(model, onnx.ModelProto):
        if sum(len(tensor.raw_data) for tensor in model.graph.initializer) <= LIMIT:
            return model, {}
        model = ir.from_proto(model)
    if nbytes(model.graph.initializers.values()) <= LIMIT:
        return ir.to_proto(model), {}
    rest = model.clone()
    constants = {}
    for name, value in list(rest.graph.initializers.items()):
        if value.const_value is not None and value.const_value.nbytes >= LARGE:
            constants[name] = as_torch(value.const_value)
            del rest.graph.initializers[name]
            value.const_value = None
            rest.graph.inputs.append(value)
    return ir.to_proto(rest), constants


def with_constants(
    model: onnx.ModelProto, constants: Mapping[str, torch.Tensor], options: ort.SessionOptions
) -> onnx.ModelProto:
    """``model`` with inputs as initializers of the values given, which ``options`` are to hand to the session.

    Those that nothing reads are left out: ONNX Runtime drops them, and then refuses their values.
    """
    if not constants:
        return model
    rest = copy_of(model)
    del rest.graph.input[:]
    rest.graph.input.extend(value for value in model.graph.input if value.name not in constants)
    read = read_by(model.graph.node) | {value.name for value in model.graph.output}
    held = {name: dense(in_parts(tensor.detach())) for name, tensor in constants.items() if name in read}
    for name, tensor in held.items():
        dtype = int(from_torch_dtype(tensor.dtype))
        made = rest.graph.initializer.add(name=name, data_type=dtype, dims=tensor.shape)
        made.data_location = onnx.TensorProto.EXTERNAL
        made.external_data.add(key="location", value="in memory")
    options.add_external_initializers(list(held), [ort.OrtValue(as_ort(tensor)) for tensor in held.values()])
    return rest


def nbytes(values: Iterable[ir.Value]) -> int:
    """The size of the constants among ``values``."""
    return sum(value.const_value.nbytes for value in values if value.const_value is not None)


def as_torch(tensor: ir.TensorProtocol) -> torch.Tensor:
    """A constant as a tensor: the one that it was made from, where there is one, else one on the CPU."""
    if isinstance(tensor, TorchTensor):
        return tensor.raw
    dtype, shape = to_torch_dtype(tensor.dtype), tensor.shape.numpy()
    raw = bytearray(tensor.tobytes())
    return torch.frombuffer(raw, dtype=dtype).reshape(shape) if raw else torch.empty(shape, dtype=dtype)
