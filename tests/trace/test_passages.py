"""What is shown, and what is computed or moved."""

from __future__ import annotations

import onnx
import pytest
import torch
from onnx.helper import make_node

from dort_compare.trace.passages import Passages, Source, are_same_elements

NODES = [
    make_node("Neg", ["x"], ["a"]),
    make_node("Reshape", ["a", "shape"], ["b"]),
    make_node("Identity", ["b"], ["c"]),
    make_node("Identity", ["b"], ["theirs"], domain="others"),
    make_node("Transpose", ["c"], ["d"]),
    make_node("Identity", ["items"], ["sequence"]),
    make_node("Identity", ["x"], ["e"], domain="ai.onnx"),
    make_node("Identity", [], ["nothing"]),
]


def passages(apart: dict[int, set[str]], nodes: list[onnx.NodeProto] = NODES) -> Passages:
    return Passages(dict(enumerate(nodes)), {"sequence", "items"}, apart)


@pytest.mark.parametrize("nodes", [NODES, NODES[::-1]], ids=["in order", "in reverse"])
def test_the_source_is_what_is_computed_or_fed(nodes: list[onnx.NodeProto]) -> None:
    found = passages({}, nodes)
    assert {name: found.source(name) for name in "abcde"} == {
        **dict.fromkeys("abc", Source("a", is_fed=False)),
        "d": Source("d", is_fed=False),
        "e": Source("x", is_fed=True),
    }
    assert [found.source(name).name for name in ("theirs", "sequence", "nothing")] == ["theirs", "sequence", "nothing"]


def test_a_node_may_be_fed_what_another_makes() -> None:
    found = passages({2: {"b"}})
    assert found.source("c") == Source("b", is_fed=True)
    assert found.source("b") == Source("a", is_fed=False)


def test_elements_are_the_same_in_one_memory_and_order() -> None:
    x = torch.arange(9.0).reshape(3, 3)
    assert are_same_elements(x, x.view(9))
    assert are_same_elements(x[1:], x[1:].unsqueeze(0))
    others = (x.clone(), x.t(), x[:2], x.view(torch.int32), torch._neg_view(x), x[0, :1].expand(9))
    assert not any(are_same_elements(x, other) for other in others)
