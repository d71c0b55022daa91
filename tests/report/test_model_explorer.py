"""The node data for Model Explorer."""

from __future__ import annotations

import errno
import json
import math
import os
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from test_report import INF, NAN, ONE, refuse, report, row
from torch import nn

import dort_compare
from dort_compare.cli import main
from dort_compare.errors import UsageError
from dort_compare.report.model_explorer import METRICS

MISSING = "needs Model Explorer: pip install 'dort-compare[explorer]'"


def values_of(paths: list[Path]) -> dict[str, dict[str, float]]:
    """By metric: what a file holds of each node."""
    found = {}
    for path in paths:
        ((_, data),) = json.loads(path.read_text(), parse_constant=refuse).items()
        found[data["name"]] = {node: result["value"] for node, result in data["results"].items()}
    return found


def test_one_file_a_metric_holds_the_nodes_of_one_graph(tmp_path: Path) -> None:
    rows = (row(ONE), row(ONE + 1, onnx_nodes=("a", "b"), local=row(ONE + 2).inherited), row(None))
    paths = report(*rows).to_model_explorer(tmp_path / "new" / "folder")
    assert [path.name for path in paths] == [f"graph_1_backward.{metric}.json" for metric in METRICS]
    assert values_of(paths) == {
        "status": {"mul.Mul": 0, "a": 2, "b": 2},
        "local_error": {"a": 2.0, "b": 2.0},
        "inherited_error": {"mul.Mul": 0.0, "a": 1.0, "b": 1.0},
        "local_error_over_noise": {"a": 2.0 / 1e-5, "b": 2.0 / 1e-5},
    }


def test_of_rows_that_share_a_node_the_worst_counts(tmp_path: Path) -> None:
    values = values_of(report(row(ONE + 1), row(ONE), row(ONE + 3)).to_model_explorer(tmp_path))
    assert values["status"] == {"mul.Mul": 2}
    assert values["inherited_error"] == {"mul.Mul": 3.0}


@pytest.mark.parametrize("got", [NAN, INF], ids=["nan", "inf"])
def test_only_finite_numbers_are_written(got: torch.Tensor, tmp_path: Path) -> None:
    bad = row(got, local=row(got).inherited)
    values = values_of(report(bad, row(ONE, noise_floor=0.0, onnx_nodes=("exact",))).to_model_explorer(tmp_path))
    assert values["status"] == {"mul.Mul": 2, "exact": 0}
    assert all(math.isfinite(value) for of_metric in values.values() for value in of_metric.values())


def test_older_files_are_replaced_and_a_file_is_no_folder(tmp_path: Path) -> None:
    report(row(ONE)).to_model_explorer(tmp_path)
    paths = report(row(ONE + 1)).to_model_explorer(tmp_path)
    assert values_of(paths)["status"] == {"mul.Mul": 2}
    assert sorted(tmp_path.iterdir()) == sorted(paths)
    with pytest.raises(UsageError, match="no permission or no folder; choose another one"):
        report(row(ONE)).to_model_explorer(paths[0])


def test_a_file_that_cannot_be_written_is_told_as_those_of_other_forms_are(tmp_path: Path) -> None:
    (tmp_path / "graph_1_backward.local_error.json").mkdir()
    with pytest.raises(UsageError, match=r"^cannot write .*local_error.json: it is a folder; name a file$"):
        report(row(ONE)).to_model_explorer(tmp_path)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(UsageError, match=r": Permission denied; name another folder$"):
        report(row(ONE)).to_model_explorer(tmp_path / "new")


def command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    return int(stopped.value.code or 0)


def test_the_commands_refuse_a_folder_before_they_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file := tmp_path / "file").touch()
    for arguments in (["llama"], ["check", str(tmp_path)]):
        assert command(*arguments, "--model-explorer", str(file / "data")) == 2
        assert "cannot write into" in capsys.readouterr().err
    inside = str(tmp_path / "dump" / "data")
    assert command("llama", "--dump", str(tmp_path / "dump"), "--model-explorer", inside) == 2
    assert "--model-explorer" in capsys.readouterr().err


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dump of a model that was compared, and beside it the node data that ``check`` makes of it."""
    folder = tmp_path_factory.mktemp("explored")
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    dort_compare.compare(model, (torch.randn(5, 4),), backward=True, dump=folder / "dump")
    assert command("check", str(folder / "dump"), "--model-explorer", str(folder / "data")) == 0
    return folder


def models_and_data(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    found = []
    for path in sorted((folder / "data").iterdir()):
        number = path.name.split("_")[1]
        found.append((folder / "dump" / f"model_{number}.onnx", json.loads(path.read_text())))
    return found


def test_keys_are_the_names_of_dumped_graphs_and_of_their_nodes(compared: Path) -> None:
    found = models_and_data(compared)
    assert len(found) == 2 * len(METRICS)
    for path, data in found:
        graph = onnx.load(path).graph
        assert data.keys() == {graph.name}
        results = data[graph.name]["results"]
        assert results.keys() <= {node.name for node in graph.node}
        named_after_fx = {node.name for node in graph.node if "." not in node.output[0]}
        assert named_after_fx <= results.keys()
        assert len(named_after_fx) > 5


def test_model_explorer_knows_every_node(compared: Path) -> None:
    builder = pytest.importorskip("model_explorer.node_data_builder", reason=MISSING)
    adapter = pytest.importorskip("model_explorer_onnx.main", reason=MISSING).ONNXAdapter()
    import dacite

    for path, data in models_and_data(compared):
        graphs = {graph.id: graph for graph in adapter.convert(str(path), {})["graphs"]}
        for name, of_graph in data.items():
            read = dacite.from_dict(builder.GraphNodeData, of_graph, dacite.Config(strict=True))
            assert json.loads(builder.ModelNodeData({name: read}).to_json_string()) is not None
            assert read.results.keys() <= {node.id for node in graphs[name].nodes}
