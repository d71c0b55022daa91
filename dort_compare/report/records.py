"""A report as one flat table: a record for every value of every graph, every output and every gradient."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from dort_compare.measure.distance.distances import Distance
from dort_compare.measure.outcome import OutcomeRow
from dort_compare.measure.rows import Row
from dort_compare.plain import printable
from dort_compare.report.tables import shape_text

if TYPE_CHECKING:
    from dort_compare.report.report import Report

_NUMBERS = ("noise_floor", "torch_vs_float64", "onnx_vs_float64")
_MEASURED = [field.name for field in fields(Distance)]
COLUMNS = (
    *("kind", "name", "status", "backend", "phase", "graph", "run", "call", "target", "module", "source", "dtype"),
    "shape",
    *("reason", "onnx_value", "onnx_nodes", "op_types", "fused", "computed_in", "held_in"),
    *(f"inherited_{name}" for name in _MEASURED),
    *(f"local_{name}" for name in _MEASURED),
    *_NUMBERS,
    *(f"local_{name}" for name in _NUMBERS[1:]),
)
"""``kind`` is "value", "output", "gradient" or "update", ``name`` the FX node, or what the model calls it.
``inherited_...`` and ``local_...`` are the fields of both distances; what was not measured is None."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def records(report: Report) -> list[dict[str, Any]]:
    """One for every row and output, all with the keys of ``COLUMNS``."""
    return [*map(_of_value, report.rows), *map(_of_outcome, report.outputs)]


def csv_text(report: Report) -> str:
    """The records as RFC 4180 has them, but for line ends; text that a spreadsheet would compute begins with a "'"."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in record.items()} for record in records(report))
    return out.getvalue()


def _of_value(row: Row) -> dict[str, Any]:
    held = {name: " ".join(getattr(row, name)) for name in ("onnx_nodes", "op_types", "fused")}
    same = ("status", "phase", "graph", "run", "call", "target", "module", "source", "dtype", "reason", "onnx_value")
    numbers = (*_NUMBERS, *(f"local_{name}" for name in _NUMBERS[1:]), "computed_in", "held_in")
    own = {name: getattr(row, name) for name in (*same, *numbers)}
    distances = {**_flat("inherited", row.inherited), **_flat("local", row.local)}
    return _record(kind="value", name=row.fx_node, shape=shape_text(row.shape), **held, **own, **distances)


def _of_outcome(row: OutcomeRow) -> dict[str, Any]:
    own = {name: getattr(row, name) for name in ("kind", "name", "backend", "dtype", *_NUMBERS)}
    status = "ok" if row.ok else "diverges"
    return _record(status=status, shape=shape_text(row.shape), **own, **_flat("inherited", row.distance))


def _record(**known: Any) -> dict[str, Any]:
    return {**dict.fromkeys(COLUMNS), **known}


def _flat(prefix: str, distance: Distance | None) -> dict[str, Any]:
    found = asdict(distance) if distance else {}
    return {
        f"{prefix}_{name}": shape_text(value) if name == "worst" and value else value for name, value in found.items()
    }


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return f"'{printable(value)}" if value.startswith(_FORMULA) else printable(value)
