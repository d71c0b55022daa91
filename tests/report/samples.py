"""Rows and reports as a comparison of two elements makes them."""

from __future__ import annotations

import math
from typing import Any

import torch

from dort_compare.measure.distance.metrics import distance
from dort_compare.measure.outcome import outcome_rows
from dort_compare.measure.rows import Row
from dort_compare.measure.verdict import judge
from dort_compare.report import Report

ONE = torch.ones(2)
NAN = torch.tensor([math.nan, 1.0])
INF = torch.tensor([math.inf, 1.0])


def row(got: torch.Tensor | None, **changes: Any) -> Row:
    measured: dict[str, Any] = {}
    if got is not None:
        found = distance(ONE, got).between("torch", "ONNX")
        nodes = (f"{changes.get('fx_node', 'mul')}.Mul",)
        measured = {
            "onnx_value": "mul", "onnx_nodes": nodes, "inherited": found, "noise_floor": 1e-5,
            "torch_vs_float64": 0.0, "onnx_vs_float64": math.inf,
        }  # fmt: skip
    status = "unaligned" if got is None else "ok" if distance(ONE, got).equal else "diverges"
    where = {"fx_node": "mul", "target": "aten.mul.Tensor", "module": "layers.0.mlp", "source": "model.py:7"}
    given = {"phase": "backward", "graph": 1, **where, "dtype": "float32", "shape": (2,), "status": status, **measured}
    return Row(**{"call": changes.get("fx_node", "mul"), **given, **changes})


def report(*rows: Row, got: torch.Tensor = ONE, outputs: bool = True) -> Report:
    found = tuple(outcome_rows("debug", "output", {"y": ONE}, {"y": got}, dict, None)) if outputs else ()
    return Report(*judge(rows, found), rows, found)
