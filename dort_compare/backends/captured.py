"""A capture of what a call launches on the GPU: whether launching it again would do the same, and where results lie."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from dort_compare.errors import one_line
from dort_compare.runtime.boxed import Boxed

_REPEATABLE = ("Kernel", "Memset", "Empty", "WaitEvent", "EventRecord", "MemAlloc", "MemFree")
"""Kinds of nodes of CUDA graphs that do the same whenever they are launched, by how their names end."""


def refusal(boxed: Boxed, arguments: list[Any], device: torch.device) -> str | None:
    """Why launching again what a call launches would not do what the call does; None where it would.

    Kernels of ONNX Runtime may read what they have copied from memory of the CPU that is another's at the next launch.
    Nothing is computed: what is captured here is thrown away.
    """
    generator = torch.cuda.default_generators[device.index]
    unharmed = generator.clone_state()
    graph, stream = torch.cuda.CUDAGraph(keep_graph=True), torch.cuda.Stream(device)
    gc.collect()
    try:
        with (
            torch.cuda.device(device),
            torch.cuda.stream(torch.cuda.current_stream(device)),  # is current again, whatever happens within
            _no_collection(),
            torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"),
        ):
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
        elif kind not in _REPEATABLE:
            yield f"it holds what may not be the same again: {kind}"


def in_torchs_storages(boxed: Boxed, arguments: list[Any]) -> list[Any]:
    """What ``boxed`` returns, in storages that torch has made, as its CUDA graph trees ask for; an argument, or a view
    of one, as it is. Results that share memory share it."""
    lent = [StorageWeakRef(each.untyped_storage()) for each in arguments if isinstance(each, torch.Tensor)]
    kept = {storage.cdata for storage in lent}
    copies: dict[int, torch.UntypedStorage] = {}

    def copied(result: Any) -> Any:
        if not isinstance(result, torch.Tensor):
            return result
        if result.is_conj() or result.is_neg():  # a launch would lose these marks
            return result.resolve_conj().resolve_neg()
        storage = result.untyped_storage()
        if storage._cdata in kept or not storage.nbytes():
            return result
        if storage._cdata not in copies:
            copies[storage._cdata] = storage.clone()
        plain = torch.empty((), dtype=result.dtype, device=result.device)
        return plain.set_(copies[storage._cdata], result.storage_offset(), result.size(), result.stride())

    with torch.no_grad(), _no_collection():
        results = boxed(arguments)
        return [copied(result) for result in results]


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without Python's collector of garbage: the end of a session waits for the device, which ends a capture."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
