"""What a file of somebody else's causes is one line; a mistake of this package keeps its traceback."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dort_compare import compare
from dort_compare.cli import main
from dort_compare.errors import DumpError
from dort_compare.offline import check
from dort_compare.problems import as_dump_error, out_of_memory


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    compare(nn.Sequential(nn.ReLU(), nn.Tanh()), (torch.randn(2, 3),), dump=tmp_path / "dump")
    return tmp_path / "dump"


def refused_by_torch(dump: Path) -> None:
    path = dump / "model_0.fx.json"
    content = json.loads(path.read_text())
    next(node for node in content["nodes"] if node["name"] == "relu")["args"] = ["text"]
    path.write_text(json.dumps(content))


def test_a_mistake_of_ours_over_a_dump_keeps_its_traceback(dump: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("dort_compare.measure.graph_rows.values_of_fx_nodes", None)
    with pytest.raises(TypeError, match="not callable"):
        check(dump)
    with pytest.raises(SystemExit) as stopped:
        main(["check", str(dump)])
    err = capsys.readouterr().err
    assert stopped.value.code == 3
    assert "graph_rows.py" in err
    assert "an error of its own; please report it" in err


def test_what_torch_refuses_names_the_node_and_has_its_cause(dump: Path, caplog: Any) -> None:
    refused_by_torch(dump)
    with caplog.at_level(logging.DEBUG, "dort_compare.errors"), pytest.raises(DumpError) as caught:
        check(dump)
    message = str(caught.value)
    assert f"graph model_0 of {dump} cannot be run at FX node relu (aten.relu.default, " in message
    assert "\n" not in message
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert "Traceback" in caplog.text
    assert "eager.py" in caplog.text


@pytest.mark.parametrize("kind", [RuntimeError, OSError])
def test_what_kernels_and_the_system_raise_is_no_mistake_of_ours(kind: type[Exception]) -> None:
    with pytest.raises(DumpError, match=f"it cannot be run: {kind.__name__}"), as_dump_error("it"):
        raise kind("no")


def test_too_little_memory_says_where_and_what_to_do(dump: Path, capsys: Any) -> None:
    path = dump / "model_0.fx.json"
    content = json.loads(path.read_text())
    relu = next(node for node in content["nodes"] if node["name"] == "relu")
    relu.update(target="aten.full.default", args=[[2**48], 1])
    path.write_text(json.dumps(content))
    with pytest.raises(SystemExit, match="2"):
        main(["check", str(dump)])
    err = capsys.readouterr().err
    assert "model_0" in err
    assert "not enough memory for 2,097,152.0 GiB at FX node relu (aten.full.default, " in err
    assert "make batch, lengths or layers smaller, or let less be compared at a time (--memory, memory=)\n" in err
    assert "alloc" not in err


@pytest.mark.parametrize(
    "problem",
    [
        MemoryError(),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] you tried to allocate 3221225472 bytes."),
        RuntimeError("Storage size calculation overflowed with sizes=[9]"),
    ],
)
def test_every_way_to_run_out_of_memory_is_known(problem: Exception) -> None:
    problem.add_note("at FX node mm (aten.mm.default, net.py:7)")
    problem.add_note("of forward graph 0")
    size = " for 3.0 GiB" if "3221225472" in str(problem) else ""
    where = " at FX node mm (aten.mm.default, net.py:7) of forward graph 0"
    assert out_of_memory(problem).startswith(f"not enough memory{size}{where}: make batch")
    assert out_of_memory(ValueError("alloc")) == ""
