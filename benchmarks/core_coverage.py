"""Core ATen and what autograd emits: every overload by itself, in every dtype, on the calls that op_db makes of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from op_calls_compiled import compiled_outcome
from op_coverage import function_of, samples_of
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool")
CALLS = 2
"""How many calls of an overload are measured in each dtype."""
Call = tuple[tuple[Any, ...], dict[str, Any]]


def core_overloads() -> list[str]:
    """The overloads that torch tags as core, but for those that write into a tensor given as ``out``."""
    packets = (getattr(torch.ops.aten, name) for name in dir(torch.ops.aten))
    overloads = [
        getattr(packet, name)
        for packet in packets
        if isinstance(packet, torch._ops.OpOverloadPacket)
        for name in packet.overloads()
    ]
    return sorted(str(op) for op in overloads if torch.Tag.core in op.tags and not op._schema.is_mutable)


def overload_of(name: str) -> torch._ops.OpOverload:
    """The overload called ``namespace.packet.overload``."""
    namespace, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


def measure_overload(name: str, entries: Sequence[str]) -> dict[str, Any]:
    """For each dtype: how the calls went that the entries of op_db make, "" if all was well and in ONNX Runtime."""
    return {"overload": name, "dtypes": {dtype: _measure(name, entries, dtype) for dtype in DTYPES}}


def _measure(name: str, entries: Sequence[str], dtype: str) -> str | None:
    overload = overload_of(name)
    problems = []
    for args, kwargs in itertools.islice(_calls(overload, entries, getattr(torch, dtype)), CALLS):
        outcome = compiled_outcome(_calling(overload), args, kwargs)
        if outcome is None:
            continue
        fallen = [f"{op}: {reason}" for _, op, reason in outcome.fallen_back if op != "no graph"]
        problems.append(outcome.forward or next(iter(fallen), ""))
    return next((problem for problem in problems if problem), "") if problems else None


def _calling(overload: torch._ops.OpOverload) -> Callable[..., Any]:
    """A function of Python's, which torch.compile takes."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return overload(*args, **kwargs)

    return call


def _calls(overload: torch._ops.OpOverload, entries: Sequence[str], dtype: torch.dtype) -> Iterator[Call]:
    """Calls of different signatures, with tensors of ``dtype`` among their arguments."""
    seen = set()
    for entry in entries:
        for sample in samples_of(entry, dtype):
            with _Recorder(overload) as recorder:
                recorder.run(entry, sample)
            for call in recorder.calls:
                signature = _signature(call)
                if signature not in seen and str(dtype) in signature:
                    seen.add(signature)
                    yield call


def _signature(call: Call) -> str:
    return str(tree_map_only(Tensor, lambda t: (t.dtype, t.ndim), call))


class _Recorder(TorchDispatchMode):
    def __init__(self, overload: torch._ops.OpOverload) -> None:
        super().__init__()
        self.overload = overload
        self.calls: list[Call] = []

    def run(self, entry: str, sample: Any) -> None:
        try:
            result = function_of(entry)(sample.input, *sample.args, **sample.kwargs)
            outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor) and leaf.requires_grad]
            torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])
        except Exception:  # noqa: BLE001  (an input that torch itself does not accept)
            return

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is self.overload:
            with torch.utils._python_dispatch._disable_current_modes():
                self.calls.append(tree_map_only(Tensor, lambda t: t.detach().clone(), (args, kwargs)))
        return func(*args, **kwargs)
