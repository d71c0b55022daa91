"""Core ATen and what autograd emits: every overload by itself, in every dtype, on the calls that op_db makes of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from op_calls_compiled import compiled_outcome
from op_coverage import UNSPECIFIED, run_both_ways, samples_of
from torch import Tensor
from torch.testing import make_tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from dort_compare.randomness import draws

DTYPES = ("float32", "float64", "float16", "bfloat16", "complex64", "complex128", "int64", "int32", "uint8", "bool")
CALLS = 2
"""How many calls of an overload are measured in each dtype."""
Call = tuple[tuple[Any, ...], dict[str, Any]]
Arguments = Callable[[Tensor], tuple[Any, ...]]
OWN_CALLS: dict[str, Arguments] = {
    "aten._native_batch_norm_legit_no_training.default": lambda x: (
        x,
        None,
        None,
        x[0, :, 0, 0],
        x[1, :, 0, 0],
        0.1,
        1e-5,
    ),
    "aten.adaptive_avg_pool1d.default": lambda x: (x[0], [2]),
    "aten.avg_pool1d.default": lambda x: (x[0], [2]),
    "aten.copy.default": lambda x: (x, x[0]),
    "aten.fmod.Scalar": lambda x: (x, 3),
    "aten.div.Scalar_mode": lambda x: (x, 2, {"rounding_mode": "floor"}),
    "aten.remainder.Scalar": lambda x: (x, 3),
    "aten.bitwise_and.Scalar": lambda x: (x, 3),
    "aten.bitwise_or.Scalar": lambda x: (x, 3),
    "aten.bitwise_xor.Scalar": lambda x: (x, 3),
    "aten.upsample_bilinear2d.vec": lambda x: (x, [6, 6], False, None),
    "aten.upsample_nearest2d.vec": lambda x: (x, [6, 6], None),
    "aten.var.dim": lambda x: (x, [1]),
}
"""For what no entry of op_db calls: from numbers of shape (2, 3, 4, 4) to the arguments, those by keyword last."""


def overload_of(name: str) -> torch._ops.OpOverload:
    """The overload called ``namespace.packet.overload``."""
    namespace, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


def reason_outside(name: str) -> str:
    """Why a core overload is not to run in ONNX Runtime, or cannot be called by itself; "" for all others."""
    overload = overload_of(name)
    if draws(overload):
        return "random numbers are drawn in torch, so that both sides draw the same"
    if name.startswith("aten.sym_") or name == "aten._local_scalar_dense.default":
        return "a number, met in graphs of symbolic sizes: tests/lowering/test_symbolic_sizes.py"
    if name == "aten.nonzero.default":
        return "graphs hold it with torch._dynamo.config.capture_dynamic_output_shape_ops"
    return ""


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
        wrong = outcome.forward if overload.overloadpacket.__name__ not in UNSPECIFIED else ""
        problems.append(wrong or next(iter(fallen), ""))
    return next((problem for problem in problems if problem), "") if problems else None


def _calling(overload: torch._ops.OpOverload) -> Callable[..., Any]:
    """A function of Python's, which torch.compile takes."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return overload(*args, **kwargs)

    return call


def _calls(overload: torch._ops.OpOverload, entries: Sequence[str], dtype: torch.dtype) -> Iterator[Call]:
    """Calls of different signatures, with tensors of ``dtype`` among their arguments."""
    if str(overload) in OWN_CALLS:
        yield from _accepted(overload, OWN_CALLS[str(overload)], dtype)
    seen = set()
    for entry in entries:
        for sample in samples_of(entry, dtype):
            with _Recorder(overload) as recorder:
                run_both_ways(entry, sample)
            for call in recorder.calls:
                signature = _signature(call)
                if signature not in seen and str(dtype) in signature:
                    seen.add(signature)
                    yield call


def _accepted(overload: torch._ops.OpOverload, arguments: Arguments, dtype: torch.dtype) -> Iterator[Call]:
    """The call of our own, where torch has a kernel for the dtype."""
    torch.manual_seed(0)
    args = arguments(make_tensor((2, 3, 4, 4), dtype=dtype, device="cpu", low=0, high=9))
    args, kwargs = (args[:-1], args[-1]) if isinstance(args[-1], dict) else (args, {})
    try:
        overload(*args, **kwargs)
    except (RuntimeError, NotImplementedError):
        return
    yield args, kwargs


def _signature(call: Call) -> str:
    return str(tree_map_only(Tensor, lambda t: (t.dtype, t.ndim), call))


class _Recorder(TorchDispatchMode):
    def __init__(self, overload: torch._ops.OpOverload) -> None:
        super().__init__()
        self.overload = overload
        self.calls: list[Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is self.overload:
            with torch.utils._python_dispatch._disable_current_modes():
                self.calls.append(tree_map_only(Tensor, lambda t: t.detach().clone(), (args, kwargs)))
        return func(*args, **kwargs)
