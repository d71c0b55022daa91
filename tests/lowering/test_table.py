"""``python -m dort_compare.lowering``: the table of overloads."""

from __future__ import annotations

import sys

import pytest
import torch

from dort_compare.lowering import registered
from dort_compare.lowering.__main__ import main
from dort_compare.lowering.table import core_overloads, routes

aten = torch.ops.aten


def test_every_core_overload_and_every_lowering_has_its_line() -> None:
    named = {route.overload for route in routes()}
    assert core_overloads() <= named
    assert {str(op) for op in registered() if isinstance(op, torch._ops.OpOverload)} <= named


def test_a_core_overload_was_tested_unless_it_runs_in_eager_torch() -> None:
    """Those of numbers, and of sizes that depend on values, cannot be called by themselves."""
    apart = {"aten.sym_size.int", "aten.sym_numel.default", "aten.sym_stride.int", "aten.sym_is_contiguous.default"}
    apart |= {"aten._local_scalar_dense.default", "aten.nonzero.default"}
    in_eager = {route.overload for route in routes() if route.how == "eager torch"}
    tested = {route.overload for route in routes() if route.dtypes}
    assert core_overloads() - tested - in_eager - apart == set()


def test_the_table_is_cut_to_what_is_asked_for(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(sys, "argv", ["lowering", "aten.addmm.default"])
    main()
    head, line = capsys.readouterr().out.splitlines()
    assert head.split() == [
        "overload",
        "reached",
        "by",
        "wholly",
        "in",
        "ONNX",
        "Runtime,",
        "equal",
        "to",
        "eager",
        "in",
    ]
    assert line.startswith("aten.addmm.default  lowering in matmul.py  ")


def test_listing_core_aten_leaves_torch_as_it_is() -> None:
    """torch.export takes what torch.ops.aten lists for what may be a custom op."""
    before = dir(aten)
    assert len(core_overloads()) > 150
    assert dir(aten) == before
