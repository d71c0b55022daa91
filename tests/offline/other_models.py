"""Models in the place of a dump's own, and what is read off the reports of checks."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from dort_compare import Report
from dort_compare.cli import main


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["check", *map(str, arguments)])
    captured = capsys.readouterr()
    return int(stopped.value.code or 0), captured.out, captured.err


def own(dump: Path, number: int = 0) -> onnx.ModelProto:
    return onnx.load(dump / f"model_{number}.onnx")


def bare(model: onnx.ModelProto) -> onnx.ModelProto:
    """Without anything that says where it comes from."""
    del model.metadata_props[:]
    model.producer_name = "somebody else"
    del model.graph.value_info[:]
    for owner in (*model.graph.node, *model.graph.output):
        del owner.metadata_props[:]
    return model


def renamed(model: onnx.ModelProto) -> onnx.ModelProto:
    """With names of its own for all that it computes."""
    computed = [name for node in model.graph.node for name in node.output if name]
    names = {name: f"v{i}" for i, name in enumerate(computed)}
    for node in model.graph.node:
        for ends in (node.input, node.output):
            ends[:] = [names.get(name, name) for name in ends]
    for value in (*model.graph.value_info, *model.graph.output):
        value.name = names.get(value.name, value.name)
    return model


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    onnx.save(model, folder / "other.onnx")
    return folder / "other.onnx"


def statuses(report: Report) -> dict[str, str]:
    return {row.fx_node: row.status for row in report.rows}
