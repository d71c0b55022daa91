"""Reports as ``Report.as_json`` gives them, of rows that say what is compared from run to run."""

from __future__ import annotations

from typing import Any


def row(name: str, status: str = "ok", error: Any = 0.0, **more: Any) -> dict[str, Any]:
    gap = None if status == "unaligned" else {"max_abs": error, "finding": None}
    given = {"phase": "forward", "graph": 0, "fx_node": name, "target": "aten.mul.Tensor", "module": "", "source": ""}
    return {**given, "status": status, "inherited": gap, "local": gap, "noise_floor": 1.0, **more}


def report(*rows: dict[str, Any], outputs: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {"verdict": "agree", "rows": list(rows), "outputs": list(outputs)}


def output(ok: bool, error: Any) -> dict[str, Any]:
    gap = {"max_abs": error, "finding": None}
    return {"kind": "gradient", "backend": "debug", "name": "w", "ok": ok, "distance": gap, "noise_floor": 1.0}
