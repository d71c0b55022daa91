"""Sizes that torch traced as numbers are constants of the model: nothing computes them in a run.

ONNX Runtime's CUDA provider may read a size that it computes before it has arrived on the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import onnx_ir as ir
import pytest
from op_rows import ROWS, Row

from dort_compare.lowering import lower
from dort_compare.lowering.builder import Builder
from dort_compare.runtime import newest_opset

DEPEND_ON_DATA = {
    "aten.index.Tensor": "what a mask lets through",
    "aten.index_put.default": "what a mask lets through",
    "aten._unique2.default": "elements that are not equal",
    "aten.unique_consecutive.default": "elements that are not equal",
}


def nodes_of(graph: ir.Graph) -> Iterator[ir.Node]:
    """Those of nested graphs too."""
    for node in graph:
        yield node
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                yield from nodes_of(attribute.as_graph())


@pytest.mark.parametrize("row", [r for r in ROWS if str(r.target) not in DEPEND_ON_DATA], ids=lambda r: str(r.target))
def test_no_size_is_computed_in_a_run(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Builder, "on_cuda", True)
    for call in islice(row.calls(row.dtypes[0]), 3):
        model = lower(call.graph(), "inference", newest_opset()).model
        assert not {node.op_type for node in nodes_of(model.graph)} & {"Shape", "Size"}, str(call)
