"""A capture of what a call launches on the GPU: whether launching it again would do the same, and where results lie."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch

from dort_compare.errors import one_line
from dort_compare.runtime.boxed import Boxed

_AGAIN = ("Kernel", "Memset", "Empty", "WaitEvent", "EventRecord", "MemAlloc", "MemFree")
"""Kinds of nodes of CUDA graphs that do the same whenever they are launched, by how their names end."""


def refusal(boxed: Boxed, arguments: list[Any], device: torch.device) -> str | None:
    """Why launching again what a call launches would not do what the call does; None where it would.

    Kernels of ONNX Runtime may read what they have copied from memory of the CPU that is another's at the next launch.
    Nothing is computed: what is captured here is thrown away.
    """
    generator = torch.cuda.default_generators[device.index]
    unharmed = generator.clone_state()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    try:
        with torch.cuda.device(device), torch.cuda.graph(graph, capture_error_mode="thread_local"):
            boxed(arguments)
    except Exception as problem:  # noqa: BLE001  (what cannot be captured, such as a wait, shows in all kinds of errors)
        # torch (2.13) leaves these as they are during a capture
        generator.graphsafe_set_state(unharmed)
        with suppress(RuntimeError):
            torch._C._cuda_endAllocateToPool(device.index, graph.pool())
        return one_line(problem.__context__ or problem)
    return next(_work_of_the_cpu(graph), None)


def _work_of_the_cpu(graph: torch.cuda.CUDAGraph) -> Iterator[str]:
    try:
        from cuda.bindings import runtime  # noqa: PLC0415  (comes with torch for CUDA)
    except ImportError:
        yield "cuda-bindings is not installed, which shows what a CUDA graph holds"
        return
    raw = graph.raw_cuda_graph()
    _, _, count = runtime.cudaGraphGetNodes(raw)
    _, nodes, _ = runtime.cudaGraphGetNodes(raw, count)
    for node in nodes[:count]:
        kind = runtime.cudaGraphNodeGetType(node)[1].name.removeprefix("cudaGraphNodeType")
        if kind == "Memcpy":
            _, copy = runtime.cudaGraphMemcpyNodeGetParams(node)
            ends = (runtime.cudaPointerGetAttributes(end.ptr)[1].type for end in (copy.srcPtr, copy.dstPtr))
            if any(end != runtime.cudaMemoryType.cudaMemoryTypeDevice for end in ends):
                yield "it copies between the memories of CPU and GPU"
        elif kind not in _AGAIN:
            yield f"it holds what may not be the same again: {kind}"


def in_torchs_storages(boxed: Boxed, arguments: list[Any]) -> list[Any]:
    """What ``boxed`` returns, in storages that torch has made, as its CUDA graph trees ask for; an argument, or a view
    of one, as it is. Results that share memory share it."""
    kept = {a.untyped_storage().data_ptr() for a in arguments if isinstance(a, torch.Tensor)}
    copies: dict[int, torch.UntypedStorage] = {}

    def copied(result: Any) -> Any:
        if not isinstance(result, torch.Tensor) or not result.numel():
            return result
        storage = result.untyped_storage()
        if storage.data_ptr() in kept:
            return result
        if storage.data_ptr() not in copies:
            copies[storage.data_ptr()] = storage.clone()
        plain = torch.empty((), dtype=result.dtype, device=result.device)
        return plain.set_(copies[storage.data_ptr()], result.storage_offset(), result.size(), result.stride())

    with torch.no_grad():
        return [copied(result) for result in boxed(arguments)]
