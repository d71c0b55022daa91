"""CUDA memory for ONNX Runtime from torch's caching allocator, so that neither keeps what the other needs."""

from __future__ import annotations

import atexit
import ctypes
import functools
from collections.abc import Mapping

import torch

_Take = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)
_Give = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Clear = ctypes.CFUNCTYPE(None)


@functools.cache
def torch_memory(device: int) -> Mapping[str, str]:
    """The options by which ONNX Runtime's CUDA provider takes memory of ``device`` from torch; it is never given back.

    It belongs to the default stream of the device, on which sessions run. Where torch has none left, ONNX Runtime is
    given a null pointer, and its error names ``CUDAExternalAllocator``.
    """
    stream = torch.cuda.default_stream(device)
    is_ending: list[bool] = []
    atexit.register(is_ending.append, True)

    def take(size: int) -> int | None:
        try:
            return torch.cuda.caching_allocator_alloc(size, device, stream)
        except torch.OutOfMemoryError:
            return None

    def give(pointer: int | None) -> None:
        if pointer and not is_ending:  # with the process goes its memory; torch may be gone by then
            torch.cuda.caching_allocator_delete(pointer)

    callbacks = {"alloc": _Take(take), "free": _Give(give), "empty_cache": _Clear(torch.cuda.empty_cache)}
    for callback in callbacks.values():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(callback))  # a session may outlive every Python object
    pointers = {name: ctypes.cast(callback, ctypes.c_void_p).value for name, callback in callbacks.items()}
    return {f"gpu_external_{name}": str(pointer) for name, pointer in pointers.items()}
