"""One thing that was looked at."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

State = Literal["ok", "absent", "broken"]


@dataclass(frozen=True)
class Finding:
    """``state``: "ok"; "absent" where something that not everybody needs is not there; "broken" where nothing can be
    compared on the CPU. ``mend`` is the command, or the step, that mends it."""

    what: str
    state: State
    found: str
    mend: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
