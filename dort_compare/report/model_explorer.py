"""Errors as colours of the nodes of a dumped model, in the files that Model Explorer calls node data.

One file is one metric of one graph: ``{graph name: {"results": {node name: {"value": x}}, ...}}``.
https://github.com/google-ai-edge/model-explorer/wiki/2.-User-Guide#custom-node-data
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from dort_compare.errors import UsageError
from dort_compare.files import check_folder, write
from dort_compare.measure.distance.distances import Distance
from dort_compare.measure.rows import SEVERITY, Row
from dort_compare.problems import said

_BY_STATUS = {"thresholds": [{"value": n, "bgColor": c} for n, c in enumerate(("#b7e1cd", "#fce8b2", "#f28b82"))]}
_BY_SIZE = {"gradient": [{"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#f28b82"}]}


def _status(row: Row) -> float | None:
    return SEVERITY.get(row.status)


def _local(row: Row) -> float | None:
    return _largest(row.local)


def _inherited(row: Row) -> float | None:
    return _largest(row.inherited)


def _over_noise(row: Row) -> float | None:
    local = _largest(row.local)
    if local is None or row.noise_floor is None:
        return None
    return local / row.noise_floor if row.noise_floor else None if local else 0.0


def _largest(distance: Distance | None) -> float | None:
    return None if distance is None else distance.max_abs


METRICS: dict[str, tuple[Callable[[Row], float | None], dict[str, Any]]] = {
    "status": (_status, _BY_STATUS),
    "local_error": (_local, _BY_SIZE),
    "inherited_error": (_inherited, _BY_SIZE),
    "local_error_over_noise": (_over_noise, _BY_SIZE),
}
"""What the files hold: 0 ok, 1 inherits, 2 diverges; max |difference| on torch's operands, and on ONNX Runtime's own;
the former as a multiple of the noise floor."""


def write_node_data(rows: Iterable[Row], folder: str | Path) -> list[Path]:
    """Writes ``graph_<n>_<phase>.<metric>.json`` for each graph and metric, and returns the paths.

    ``<n>`` is the number of the dumped model that the file is for. A node that has no finite number, such as one whose
    value is not compared, is left out. Raises UsageError where they cannot be written.
    """
    folder = Path(folder)
    check_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UsageError(f"{folder}: {said(problem)}; name another folder") from None
    graphs: dict[tuple[int, str], list[Row]] = defaultdict(list)
    for row in rows:
        graphs[row.graph, row.phase].append(row)
    written = []
    for (number, phase), of_graph in graphs.items():
        for metric, (value, colours) in METRICS.items():
            data = {phase: {"name": metric, "results": _results(of_graph, value), **colours}}
            path = folder / f"graph_{number}_{phase}.{metric}.json"
            write(path, json.dumps(data, indent=1, allow_nan=False) + "\n")
            written.append(path)
    return written


def _results(rows: Iterable[Row], value: Callable[[Row], float | None]) -> dict[str, dict[str, float]]:
    """The value of every ONNX node; of several rows that one computes, the largest."""
    found: dict[str, float] = {}
    for row in rows:
        number = value(row)
        if number is not None and math.isfinite(number):
            for node in row.onnx_nodes:
                found[node] = max(number, found.get(node, number))
    return {node: {"value": number} for node, number in found.items()}
