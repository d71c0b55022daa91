"""Torch tensors in and out of an ONNX Runtime session without a copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir
import onnxruntime as ort
import torch
from onnx_ir.tensor_adapters import from_torch_dtype


def run(
    session: ort.InferenceSession,
    inputs: Mapping[str, torch.Tensor],
    outputs: Mapping[str, torch.device],
    run_options: ort.RunOptions | None = None,
) -> list[torch.Tensor]:
    """Runs ``session`` on ``inputs`` and returns ``outputs``, each on the device named beside it.

    Inputs are bound by pointer (every dtype and size, also none at all; only what is not contiguous is copied), outputs
    are handed over by DLPack: the tensors own the memory that the session wrote. Booleans come back as torch.bool.
    """
    binding = session.io_binding()
    alive = [_bind(binding, name, tensor) for name, tensor in inputs.items()]
    for name, device in outputs.items():
        binding.bind_output(name, device.type, device.index or 0)
    session.run_with_iobinding(binding, run_options)
    del alive
    return [_tensor(value) for value in binding.get_outputs()]


def _bind(binding: ort.IOBinding, name: str, tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach().contiguous()
    device = tensor.device
    binding.bind_input(
        name, device.type, device.index or 0, int(from_torch_dtype(tensor.dtype)), list(tensor.shape), tensor.data_ptr()
    )
    return tensor


def _tensor(value: ort.OrtValue) -> torch.Tensor:
    tensor = torch.from_dlpack(value)
    return tensor.view(torch.bool) if value.element_type() == ir.DataType.BOOL else tensor


def devices_of(arguments: Sequence[torch.Tensor | float]) -> list[torch.device]:
    """The devices of the tensors among the arguments of a graph."""
    return [argument.device for argument in arguments if isinstance(argument, torch.Tensor)]
