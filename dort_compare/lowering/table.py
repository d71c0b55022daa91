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
class Route:
    """``how`` is "lowering" with the file in ops/ that has it, "decomposition", or "eager torch" for what falls back.

    ``dtypes``: those in which every measured call ran wholly in ONNX Runtime with the values of eager torch; None for
    an overload that was not measured by itself.
    """

    overload: str
    how: str
    dtypes: tuple[str, ...] | None


def core_overloads() -> set[str]:
    """The overloads that torch tags as core, but for those that write into an operand or a tensor given as ``out``.

    torch's dispatcher is asked: ``torch.ops.aten`` lists what somebody has touched, and touching all of them changes
    what ``torch.export`` takes for custom ops.
    """
    names = [name.partition(".") for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    return {f"{packet.replace('::', '.')}.{o or 'default'}" for packet, _, o in names if _is_core(packet, o)}


def _is_core(packet: str, overload: str) -> bool:
    tags = torch._C._get_operation_overload(packet, overload)[-1]
    return torch.Tag.core in tags and not torch._C._get_schema(packet, overload).is_mutable


def routes() -> Iterator[Route]:
    """One line for every overload with a lowering, of core ATen, or emitted by autograd; sorted by name."""
    tested: dict[str, list[str]] = json.loads(_TESTED.read_text(encoding="utf-8"))
    lowered = {str(op): op for op in registered() if isinstance(op, torch._ops.OpOverload)}
    decomposed = {str(op) for op in decompositions()}
    for name in sorted({*tested, *lowered, *core_overloads()}):
        how = "decomposition" if name in decomposed else "eager torch"
        if name in lowered:
            how = f"lowering in {registered()[lowered[name]].__module__.rpartition('.')[2]}.py"
        yield Route(name, how, tuple(tested[name]) if name in tested else None)
