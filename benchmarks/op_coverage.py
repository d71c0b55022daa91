"""torch's own operator database (``op_db``), every float32 sample compiled forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

import torch
from op_calls_compiled import compiled_outcome
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dort_compare.randomness import draws

UNSPECIFIED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
"""Entries whose values torch leaves open."""


@dataclass
class EntryResult:
    """What became of the samples of one entry.

    ``aside`` names why an entry does not count for the share that runs wholly in ONNX Runtime: "random", "sparse"
    or "unspecified". ``forward`` and ``gradient`` are the problems found, ``samples`` and ``gradients`` how
    many were tried. ``fallen_back`` holds (phase, op, reason), ``ops`` the ATen overloads that eager torch dispatched.
    """

    name: str
    samples: int = 0
    gradients: int = 0
    aside: str = ""
    forward: list[str] = field(default_factory=list)
    gradient: list[str] = field(default_factory=list)
    fallen_back: list[tuple[str, str, str]] = field(default_factory=list)
    ops: list[str] = field(default_factory=list)


def entry_names(pattern: str = "") -> list[str]:
    """The entries of op_db for float32 on the CPU whose name contains ``pattern``."""
    return [name for name, info in _entries().items() if pattern in name and info.supports_dtype(torch.float32, "cpu")]


@cache
def _entries() -> dict[str, OpInfo]:
    return {".".join(filter(None, (info.name, info.variant_test_name))): info for info in op_db}


def entries_called(name: str) -> list[str]:
    """The entries, of any dtype, whose operator bears this name."""
    return [entry for entry in _entries() if entry == name or entry.startswith(f"{name}.")]


def samples_of(name: str, dtype: torch.dtype) -> Iterator[SampleInput]:
    """torch's samples for an entry; they require grad where the entry has a gradient for ``dtype``."""
    info = _entries()[name]
    if not info.supports_dtype(dtype, "cpu"):
        return
    with_gradient = info.supports_autograd and dtype in info.supported_backward_dtypes("cpu")
    torch.manual_seed(0)
    yield from info.sample_inputs("cpu", dtype, requires_grad=with_gradient)


def function_of(name: str) -> Callable[..., Any]:
    """The operator of an entry; it is called as ``function(sample.input, *sample.args, **sample.kwargs)``."""
    op = _entries()[name].op

    def call(*args: Any, **kwargs: Any) -> Any:
        return op(*args, **kwargs)

    return call


def run_both_ways(name: str, sample: Any) -> None:
    """Calls an entry in eager torch, and differentiates the sum of what comes back, where torch accepts the sample."""
    try:
        result = function_of(name)(sample.input, *sample.args, **sample.kwargs)
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor) and leaf.requires_grad]
        torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])
    except Exception:  # noqa: BLE001
        return


def measure_entry(name: str, limit: int) -> dict[str, Any]:
    """Measures up to ``limit`` samples of an entry, spread over all of them; 0: every one."""
    result = EntryResult(name)
    samples = list(samples_of(name, torch.float32))
    stride = max(1, -(-len(samples) // limit)) if limit else 1
    fallen: set[tuple[str, str, str]] = set()
    with Watch() as watch:
        for sample in samples:
            run_both_ways(name, sample)
    result.ops, result.aside = sorted(watch.ops), "unspecified" if name in UNSPECIFIED else watch.aside
    for sample in samples[::stride]:
        outcome = compiled_outcome(function_of(name), (sample.input, *sample.args), sample.kwargs)
        if outcome is None:
            continue
        result.samples += 1
        result.forward += [outcome.forward] if outcome.forward and name not in UNSPECIFIED else []
        result.gradients += outcome.gradient is not None
        result.gradient += [outcome.gradient] if outcome.gradient else []
        fallen |= set(outcome.fallen_back)
    computes_nothing = not watch.computes
    result.fallen_back = sorted(each for each in fallen if not (computes_nothing and each[1] == "no graph"))
    return asdict(result)


class Watch(TorchDispatchMode):
    """Notes what eager torch dispatches, forward and backward: the overloads, and what sets an entry aside."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: set[str] = set()
        self.aside = ""
        self.computes = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.ops.add(str(func))
        self.computes |= not func.is_view
        if draws(func):
            self.aside = "random"
        for leaf in tree_leaves((args, kwargs, result)):
            if isinstance(leaf, Tensor) and leaf.layout is not torch.strided:
                self.aside = self.aside or "sparse"
        return result
