"""JSON reports that anybody may have written, read back."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dort_compare.errors import UsageError
from dort_compare.measure.history.runs import ReportedRun, is_one_model, run_of
from dort_compare.problems import said
from dort_compare.report.report import SCHEMA

_TEXT = (str, type(None))
_DISTANCE = (dict, type(None))
_NUMBERS = ("max_abs", "mean_abs", "scale", "max_rel", "cosine")
_LISTS = ("causes", "rows", "outputs", "fallbacks", "graphs", "modules", "by_module", "observer")
_Kinds = Mapping[str, tuple[type, ...]]
_ROW: _Kinds = MappingProxyType(
    {
        **dict.fromkeys(("phase", "fx_node", "target", "status", "module", "source", "dtype"), (str,)),
        **dict.fromkeys(("onnx_value", "reason"), _TEXT),
        **dict.fromkeys(("inherited", "local"), _DISTANCE),
        **dict.fromkeys(("shape", "onnx_nodes", "op_types"), (list,)),
        "graph": (int,),
    }
)
_OUTPUT: _Kinds = MappingProxyType(
    {
        **dict.fromkeys(("backend", "kind", "name", "dtype"), (str,)),
        "ok": (bool,),
        "shape": (list,),
        "distance": _DISTANCE,
    }
)


def read_report(path: str | Path) -> dict[str, Any]:
    """What ``Report.to_json`` wrote. Raises UsageError, in a line, for what it would not have written."""
    try:
        found = json.loads(
            Path(path).read_text(encoding="utf-8"), parse_constant=_refuse, parse_float=_finite, parse_int=_whole
        )
    except (OSError, ValueError, RecursionError) as problem:
        raise UsageError(f"{path} cannot be read as a report: {said(problem)}; name a file of --json") from None
    is_report = isinstance(found, dict) and "verdict" in found
    if is_report and type(found.get("schema")) is int and found["schema"] > SCHEMA:
        raise UsageError(f"{path} is in format {found['schema']}, newer than {SCHEMA} of this dort-compare: update it")
    wrong = _problem(found)
    if wrong:
        raise UsageError(f"{path} is no report of dort-compare: {wrong}; make one with --json FILE")
    return dict(found)


def read_runs(paths: Sequence[Path]) -> list[ReportedRun]:
    """The reports of one model, each named by its file. Raises UsageError as ``read_report`` does, and for one that is
    given twice or is of another model than the one before it."""
    files: dict[str, Path] = {}
    for path in paths:
        first = files.setdefault(os.path.realpath(path), path)
        if first is not path:
            raise UsageError(f"{path} is the same file as {first}: name each report once")
    runs = [run_of(read_report(path), str(path)) for path in paths]
    for old, new in pairwise(runs):
        if not is_one_model(old, new):
            raise UsageError(f"{new.name} is of another model than {old.name}: name reports of one model")
    return runs


def _refuse(constant: str) -> float:
    raise ValueError(f"it holds {constant[:40]}, which is no number of strict JSON")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _whole(text: str) -> int:
    _finite(text)
    return int(text)


def _problem(found: Any) -> str | None:
    """What is wrong with it, if anything."""
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        return f"its schema is not {SCHEMA}"
    if found.get("verdict") not in ("agree", "diverge"):
        return "it holds no verdict"
    for name in _LISTS:
        if not isinstance(found.get(name), list) or not all(isinstance(each, dict) for each in found[name]):
            return f"its {name} are no list of objects"
    for name in ("precision", "settings", "environment"):
        if not isinstance(found.get(name), dict):
            return f"{name} in it is no object"
    optimized = found.get("optimized")
    if optimized is not None and not (isinstance(optimized, dict) and isinstance(optimized.get("rows"), list)):
        return "its optimized models hold no rows"
    rows = (*found["rows"], *(optimized["rows"] if optimized else ()))
    return next(
        filter(None, (*(_wrong(row, _ROW) for row in rows), *(_wrong(row, _OUTPUT) for row in found["outputs"]))), None
    )


def _wrong(row: Any, kinds: _Kinds) -> str | None:
    """What a row holds that none can hold."""
    if not isinstance(row, dict):
        return "a row is no object"
    lacking = next((key for key in kinds if key not in row), None)
    if lacking:
        return f"a row lacks its {lacking}"
    name = next((key for key, kind in kinds.items() if not isinstance(row.get(key), kind)), None)
    if name:
        return f"the {name} of a row is {str(row.get(name))[:40]!r}"
    name = next((key for key in ("fused", "operands") if not isinstance(row.get(key, []), list)), None)
    if name:
        return f"the {name} of a row are no list"
    floats = [value for key, value in row.items() if key == "noise_floor" or key.endswith("_vs_float64")]
    for key in (name for name in ("inherited", "local", "distance") if name in kinds):
        floats += [(row.get(key) or {}).get(number) for number in _NUMBERS]
    bad = [value for value in floats if not (value is None or value == "inf" or type(value) in (int, float))]
    return f"a number of a row is {str(bad[0])[:40]!r}" if bad else None
