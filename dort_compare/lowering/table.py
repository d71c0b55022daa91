"""How each ATen overload reaches ONNX, and in which dtypes that was tested."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from dort_compare.lowering.decompositions import decompositions
from dort_compare.lowering.registry import registered

_TESTED = Path(__file__).with_name("tested.json")
"""Written by ``benchmarks/coverage.py --write``: core ATen and the overloads that autograd emits, measured."""


@dataclass(frozen=True)
class Reach:
    """``how`` is "lowering" with the file in ops/ that has it, "decomposition", or "eager torch" for what falls back.

    ``dtypes``: those in which every measured call ran wholly in ONNX Runtime with the values of eager torch; None for
    an overload that was not measured by itself.
    """

    overload: str
    how: str
    dtypes: tuple[str, ...] | None


def reaches() -> Iterator[Reach]:
    """One line for every overload with a lowering, of core ATen, or emitted by autograd; sorted by name."""
    tested: dict[str, list[str]] = json.loads(_TESTED.read_text())
    lowered = {str(op): op for op in registered() if isinstance(op, torch._ops.OpOverload)}
    decomposed = {str(op) for op in decompositions()}
    for name in sorted({*tested, *lowered}):
        how = "decomposition" if name in decomposed else "eager torch"
        if name in lowered:
            how = f"lowering in {registered()[lowered[name]].__module__.rpartition('.')[2]}.py"
        yield Reach(name, how, tuple(tested[name]) if name in tested else None)
