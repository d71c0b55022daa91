"""What to keep in float32, or to do instead, so that gradients and outputs stay inside their floor."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from dort_compare.measure.half.place import NodePlace
from dort_compare.measure.rows import json_number

Mend = Literal["none needed", "float32", "loss scale", "loss scale and float32", "none suffices", "not searched"]


@dataclass(frozen=True)
class KeptNode(NodePlace):
    """An FX node to keep in float32."""


@dataclass(frozen=True)
class ResultError:
    """How far an output or gradient lies from float64, before and after the mend: norm of the error over norm of the
    result; ``floor`` is as far as it may.
    """

    kind: str
    name: str
    floor: float
    before: float
    after: float

    def to_json(self) -> dict[str, Any]:
        before, after = json_number(self.before), json_number(self.after)
        return {"kind": self.kind, "name": self.name, "floor": self.floor, "before": before, "after": after}


@dataclass(frozen=True)
class Suggestion:
    """The mend, why, and what it does to each result.

    ``nodes`` are to be kept in float32 and ``loss_scale`` is a factor for the loss, where ``mend`` says so. Where
    nothing suffices, the errors "after" are those with everything in float32. ``lines`` counts the lines of the model
    that compute in half precision, ``runs`` how often the model was run for this.
    ``out_of_reach`` names the results that stay beyond their floor with everything in float32.
    """

    mend: Mend
    reason: str
    nodes: tuple[KeptNode, ...] = ()
    loss_scale: float | None = None
    errors: tuple[ResultError, ...] = ()
    lines: int = 0
    runs: int = 0
    out_of_reach: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "mend": self.mend,
            "reason": self.reason,
            "nodes": [asdict(node) for node in self.nodes],
            "loss_scale": self.loss_scale,
            "errors": [error.to_json() for error in self.errors],
            "lines": self.lines,
            "runs": self.runs,
            "out_of_reach": list(self.out_of_reach),
        }

    @property
    def worst(self) -> ResultError | None:
        """The result that lay furthest beyond its floor before."""
        return max(self.errors, key=lambda error: error.before / error.floor, default=None)
