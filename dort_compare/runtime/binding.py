"""Torch tensors in and out of an ONNX Runtime session without a copy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnxruntime as ort
import torch
from onnxruntime.capi import _pybind_state as native
from torch.utils.dlpack import to_dlpack

from dort_compare.dtypes import in_parts
from dort_compare.runtime.torch_threads import letting_go

_DTYPES = {
    torch.float64: np.float64,
    torch.float32: np.float32,
    torch.float16: np.float16,
    torch.int64: np.int64,
    torch.int32: np.int32,
    torch.int16: np.int16,
    torch.int8: np.int8,
    torch.uint64: np.uint64,
    torch.uint32: np.uint32,
    torch.uint16: np.uint16,
    torch.uint8: np.uint8,
    torch.bool: np.bool_,
}
"""Those of which ONNX Runtime takes many tensors at once, by their pointers."""
_BOOLEANS_ARE_BYTES = hasattr(native.OrtValueVector, "bool_tensor_indices")
"""Whether ONNX Runtime has no booleans in DLPack: before 1.32 it takes and gives bytes that it marks."""


class Binding:
    """The inputs and outputs of a session, in the order in which ``run`` takes and returns their tensors.

    ``outputs`` gives, by name, the device of each output. With ``on_cpu`` the session runs there alone, and torch's
    threads let go of the cores before.
    """

    def __init__(
        self,
        session: ort.InferenceSession,
        inputs: Sequence[str],
        outputs: Mapping[str, torch.device],
        *,
        on_cpu: bool = False,
    ) -> None:
        run = session.run_with_ortvaluevector
        self._run = letting_go(run) if on_cpu else run
        self._inputs = list(inputs)
        self._outputs = list(outputs)
        self._devices = [_ort_device(device) for device in outputs.values()]
        self._input_devices: dict[torch.device, native.OrtDevice] = {}

    def run(self, tensors: Sequence[torch.Tensor], run_options: ort.RunOptions) -> list[torch.Tensor]:
        """Runs the session.

        Inputs are handed over by pointer, all in one call; the few that ONNX Runtime does not take so, which are empty
        or of a dtype that numpy lacks, by DLPack, complex ones as their parts. Only what is not contiguous, or negated
        by a mark alone, is copied.
        The tensors returned own the memory that the session wrote. Booleans come back as torch.bool.
        """
        plain, names, special = [], [], []
        for name, tensor in zip(self._inputs, tensors, strict=True):
            if tensor.dtype in _DTYPES and tensor.numel():
                plain.append(dense(tensor))
                names.append(name)
            else:
                special.append((name, dense_parts(tensor)))
        feeds, results = self._by_pointer(plain), native.OrtValueVector()
        for name, tensor in special:
            feeds.push_back(as_ort(tensor))
            names.append(name)
        self._run(run_options, names, feeds, self._outputs, results, self._devices)
        found: list[torch.Tensor] = results.to_dlpacks(torch._C._from_dlpack)
        for i in results.bool_tensor_indices() if _BOOLEANS_ARE_BYTES else ():
            found[i] = found[i].view(torch.bool)
        return found

    def _by_pointer(self, tensors: list[torch.Tensor]) -> native.OrtValueVector:
        feeds = native.OrtValueVector()
        if tensors:
            pointers = [tensor.data_ptr() for tensor in tensors]
            dtypes = [_DTYPES[tensor.dtype] for tensor in tensors]
            shapes = [tensor.shape for tensor in tensors]
            feeds.push_back_batch(tensors, pointers, dtypes, shapes, [self._device(t.device) for t in tensors])
        return feeds

    def _device(self, device: torch.device) -> native.OrtDevice:
        if device not in self._input_devices:
            self._input_devices[device] = _ort_device(device)
        return self._input_devices[device]


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor whose memory holds its elements in their order, as readers of memory take them; itself if it can be.

    That of a tensor which torch negates by a mark alone holds the opposite numbers.
    """
    return tensor if tensor.is_contiguous() and not tensor.is_neg() else tensor.resolve_neg().contiguous()


def dense_parts(tensor: torch.Tensor) -> torch.Tensor:
    """A dense tensor of the same numbers, complex ones as their parts; in the same memory if it can be."""
    return dense(in_parts(tensor.detach()))


def as_ort(tensor: torch.Tensor) -> native.OrtValue:
    """A dense tensor as ONNX Runtime's, in the same memory, which it keeps."""
    if not _BOOLEANS_ARE_BYTES:
        return native.OrtValue.from_dlpack(to_dlpack(tensor))
    is_bool = tensor.dtype == torch.bool
    return native.OrtValue.from_dlpack(to_dlpack(tensor.view(torch.uint8) if is_bool else tensor), is_bool)


def _ort_device(device: torch.device) -> native.OrtDevice:
    return ort.OrtDevice.make(device.type, device.index or 0)._get_c_device()


def device_of(values: Iterable[object]) -> torch.device:
    """Where a graph runs of which these are inputs: on the first CUDA device that one of the tensors is on, or the
    CPU."""
    devices = (value.device for value in values if isinstance(value, torch.Tensor))
    return next((device for device in devices if device.type == "cuda"), torch.device("cpu"))


def devices_of(arguments: Sequence[torch.Tensor | float]) -> list[torch.device]:
    """The devices of the tensors among the arguments of a graph."""
    return [argument.device for argument in arguments if isinstance(argument, torch.Tensor)]
