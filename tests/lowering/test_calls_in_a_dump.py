"""Every overload with a lowering can be written into a dump and read back, with all its kinds of arguments."""

from __future__ import annotations

import pytest
import torch
from op_rows import ROWS

from dort_compare.dump.graph_file import graph_text, read_graph
from dort_compare.lowering.targets import find_target
from dort_compare.scalars import unbacked_symbols


@pytest.mark.parametrize(
    "rows",
    [ROWS[::40], *(pytest.param(ROWS[i::8], marks=pytest.mark.slow) for i in range(8))],
    ids=len,
)
def test_calls_come_back(rows: list) -> None:
    for row in rows:
        for call in list(row.calls(row.dtypes[0]))[:5]:
            graph = call.graph()
            text, constants = graph_text(graph)
            read = read_graph(text, constants, find_target, lambda device: device)
            for ours, theirs in zip(graph.graph.nodes, read.graph.nodes, strict=True):
                assert (ours.op, ours.name, ours.target) == (theirs.op, theirs.name, theirs.target)
                assert str((ours.args, ours.kwargs)) == str((theirs.args, theirs.kwargs))
                value, back = ours.meta.get("val"), theirs.meta.get("val")
                if isinstance(value, torch.Tensor) and not unbacked_symbols(ours):
                    assert (value.dtype, value.shape, value.stride()) == (back.dtype, back.shape, back.stride())
