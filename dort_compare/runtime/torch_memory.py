"""Torch's CUDA memory for the sessions of ONNX Runtime, so that what either gives back the other can have."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from typing import Any

import onnxruntime as ort
import torch

from dort_compare.runtime.providers import CUDA

_Allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)
_Free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_FREE = "aoti_torch_cuda_caching_allocator_raw_delete"
"""Torch's function in C, which takes no lock of Python's: results may outlive Python."""
_ONE_AT_A_TIME = threading.Lock()


def lend(device: int) -> bool:
    """Has sessions on a CUDA device that use shared allocators (``session.use_env_allocators``) take torch's memory.

    It belongs to the stream that is current where they run, like the results of torch's own kernels. Registered once in
    a process, for ONNX Runtime takes no allocator beside a stream in the options of a provider. False where it has
    another allocator for the device already.
    """
    with _ONE_AT_A_TIME:
        return bool(_lent(device))


@functools.cache
def _lent(device: int) -> tuple[object, ...]:
    """The functions that ONNX Runtime calls, which live as long as the process; none where it does not take them."""
    functions = _allocating(device), _freeing()
    alloc, free = (str(ctypes.cast(function, ctypes.c_void_p).value) for function in functions)
    memory = ort.OrtMemoryInfo("Cuda", ort.OrtAllocatorType.ORT_DEVICE_ALLOCATOR, device, ort.OrtMemType.DEFAULT)
    given = {"gpu_external_alloc": alloc, "gpu_external_free": free}
    try:
        ort.create_and_register_allocator_v2(CUDA, memory, given, ort.OrtArenaCfg({}))
    except RuntimeError:
        return ()
    return functions


def _allocating(device: int) -> Any:
    take, stream = torch._C._cuda_cudaCachingAllocator_raw_alloc, torch._C._cuda_getCurrentRawStream

    @_Allocate
    def allocate(size: int) -> int | None:
        try:
            return take(size, stream(device))
        except torch.OutOfMemoryError:
            return None  # ONNX Runtime says that it has none

    return allocate


def _freeing() -> Any:
    with contextlib.suppress(OSError, AttributeError):
        return getattr(ctypes.CDLL("libtorch_cuda.so"), _FREE)
    return _Free(torch.cuda.caching_allocator_delete)
