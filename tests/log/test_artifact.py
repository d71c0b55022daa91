"""The artifact that a graph leaves in torch's structured trace."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dort_compare import DebugBackend


class Trace(logging.Handler):
    """Keeps what torch traces, as its own handler would write it."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[tuple[dict[str, Any], Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        artifact = record.metadata.get("artifact", {})
        if artifact.get("name", "").startswith("dort_compare"):
            self.records.append((record.metadata, json.loads(record.payload)))


@pytest.fixture
def trace() -> Iterator[Trace]:
    handler = Trace()
    logger = logging.getLogger("torch.__trace")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def test_every_graph_leaves_one_under_its_compile_id(trace: Trace, tmp_path: Path) -> None:
    backend = DebugBackend(dump=tmp_path)
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    torch.compile(model, backend=backend)(torch.ones(3, 4)).sum().backward()
    forward, backward = trace.records
    assert [metadata["artifact"] for metadata, _ in trace.records] == [
        {"name": f"dort_compare_{phase}", "encoding": "json"} for phase in ("forward", "backward")
    ]
    for metadata, record in trace.records:
        assert f"{metadata['frame_id']}/{metadata['frame_compile_id']}" == record["compile_id"] == "0/0"
        assert record["problem"] is None
        assert {"lower", "kernels", "session", "dump"} <= record["stages_ms"].keys()
        assert all(took >= 0 for took in record["stages_ms"].values())
    (dropout,) = forward[1]["fallbacks"]
    assert (dropout["target"], dropout["reason"]) == ("aten.native_dropout.default", "no lowering")
    assert [piece["graph"] for piece in forward[1]["pieces"]] == ["0", "1"]
    assert backward[1]["fallbacks"] == []
    pieces = [piece for _, record in trace.records for piece in record["pieces"]]
    assert sum(piece["onnx_nodes"] for piece in pieces) == sum(len(g.onnx_model.graph.node) for g in backend.graphs)
    assert [piece["dump"] for piece in pieces] == [f"model_{n}.onnx" for n in range(3)]
    assert all((tmp_path / piece["dump"]).exists() for piece in pieces)


def test_a_graph_that_fails_leaves_the_reason(trace: Trace) -> None:
    with pytest.raises(Exception, match="no lowering"):
        torch.compile(torch.bernoulli, backend=DebugBackend(fallback=False))(torch.ones(3))
    ((_, record),) = trace.records
    assert record["problem"].startswith("MissingLoweringError: no lowering for aten.bernoulli.default")
    assert record["pieces"] == []


def test_without_a_dump_there_is_no_file(trace: Trace) -> None:
    torch.compile(torch.sin, backend="dort")(torch.ones(3))
    ((_, record),) = trace.records
    assert [(piece["graph"], piece["dump"]) for piece in record["pieces"]] == [("0", None)]
    assert (record["phase"], record["operators"], record["inputs"]) == ("inference", 1, 1)
