"""What fell back to eager torch, and how it is told."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from torch import fx

from dort_compare import provenance
from dort_compare.provenance import Phase

_LOGGER = logging.getLogger("dort_compare")


@dataclass(frozen=True)
class Fallback:
    """One FX node that runs in eager torch, and why."""

    phase: Phase
    fx_node: str
    target: str
    source: str
    reason: str

    @classmethod
    def of(cls, node: fx.Node, phase: Phase, reason: str) -> Fallback:
        return cls(phase, node.name, _target(node), provenance.source_line(node), reason)

    def to_json(self) -> dict[str, str]:
        return asdict(self)


def _target(node: fx.Node) -> str:
    """What a node calls, and what that is to call, as what saves the state of a random generator does."""
    inner = [str(given) for given in node.args if isinstance(given, torch._ops.OpOverload)]
    return " of ".join([provenance.target_name(node), *inner])


def warn(fallbacks: Sequence[Fallback], graph_module: fx.GraphModule) -> None:
    """Tells the fallbacks of one graph through ``logging``.

    It is a warning, as where torch skips CUDA graphs or ONNX Runtime leaves nodes to another provider: the values are
    right, but it is not what was asked for, and Python shows a warning where nobody has configured logging.
    """
    nodes = sum(node.op.startswith("call_") for node in graph_module.graph.nodes)
    head = "%s graph: %d of %d nodes run in eager torch, not in ONNX Runtime (fallback=False refuses them):\n%s"
    _LOGGER.warning(head, fallbacks[0].phase, len(fallbacks), nodes, grouped(fallbacks))


def grouped(fallbacks: Sequence[Fallback]) -> str:
    """The fallbacks under their reasons, a line an op, with the first FX node of each."""
    groups: dict[str, dict[str, list[Fallback]]] = defaultdict(lambda: defaultdict(list))
    for fallback in fallbacks:
        groups[fallback.reason][fallback.target].append(fallback)
    lines = []
    for reason, ops in groups.items():
        lines.append(f"  {reason}:")
        for target, (first, *others) in ops.items():
            where = f"FX node {first.fx_node}, {first.source or 'source line unknown'}"
            lines.append(f"    {1 + len(others)} {target} ({where})")
    return "\n".join(lines)
