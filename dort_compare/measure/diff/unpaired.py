"""Values of one model that the other has not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dort_compare.align.sides import Side


@dataclass(frozen=True)
class Unpaired:
    """A value of one model ("first" or "second") that the other has not, and why it is held to have none."""

    model: str
    name: str
    op_type: str
    reason: str


def unpaired_values(
    model: str, side: Side, paired: frozenset[str], known: Mapping[tuple[str, str], str]
) -> Iterator[Unpaired]:
    """Values without a partner in order, each with what is ``known`` of it, or else of where it leads."""
    flow = side.flow
    leads_to: dict[str, str] = {}
    names = [*flow.inputs, *flow.constants, *(name for node in flow.nodes for name in node.results if name)]
    for name in reversed(names):
        results = [r for node, _ in flow.readers.get(name, ()) for r in node.results]
        ends = (r if r in paired else leads_to.get(r, "") for r in results)
        leads_to[name] = next((end for end in ends if end), "")
    for name in names:
        if name in paired:
            continue
        if (model, name) in known:
            reason = known[model, name]
        elif name in flow.opaque or name not in side.sketches:
            reason = "no numeric tensor: not compared"
        elif leads_to[name]:
            reason = f"a step on the way to {leads_to[name]!r}, where the other model has other steps"
        elif not flow.readers.get(name):
            reason = "an output without a counterpart" if name in flow.outputs else "nothing reads it"
        else:
            reason = "no paired value depends on it"
        yield Unpaired(model, name, side.op_type(name) or ("input" if name in flow.inputs else "constant"), reason)
