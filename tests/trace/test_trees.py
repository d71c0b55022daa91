"""Containers of models, those that torch knows no paths of among them."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from dort_compare import compare
from dort_compare.trace.trees import named_leaves

Two = namedtuple("Two", ["x", "y"])


class Output(OrderedDict[str, Any]):
    """Registered as diffusers registers what its models return."""


class Row:
    """A container that is no mapping."""

    def __init__(self, *items: Any) -> None:
        self.items = items


class Sorted(dict[str, Any]):
    """A mapping whose leaves stand in another order."""


@pytest.fixture(autouse=True, scope="module")
def registered() -> Iterator[None]:
    ways = {
        Output: (pytree._dict_flatten, lambda values, names: Output(zip(names, values, strict=True))),
        Row: (lambda row: ((item for item in row.items), None), lambda items, _: Row(*items)),
        Sorted: (lambda d: ([d[name] for name in sorted(d)], None), lambda items, _: items),
    }
    for kind, (flatten, unflatten) in ways.items():
        pytree.register_pytree_node(kind, flatten, unflatten, serialized_type_name=f"tests.{kind.__name__}")
    yield
    for kind in ways:
        pytree._deregister_pytree_node(kind)


@pytest.mark.parametrize(
    "tree",
    [1, None, [], (1, [2, {"a": 3}]), {"a": (1, 2), 5: [3]}, Two(1, [2]), OrderedDict(b=1, a=2)],
)
def test_paths_are_torchs_where_it_has_some(tree: Any) -> None:
    theirs = [(pytree.keystr(path), leaf) for path, leaf in pytree.tree_flatten_with_path(tree)[0]]
    assert list(named_leaves(tree)) == theirs


def test_containers_without_paths() -> None:
    tree = [Output(sample=1, more=Row(2, Output(a=(3, 4)))), {"b": Row([5])}]
    assert dict(named_leaves(tree)) == {
        "[0]['sample']": 1,
        "[0]['more'][0]": 2,
        "[0]['more'][1]['a'][0]": 3,
        "[0]['more'][1]['a'][1]": 4,
        "[1]['b'][0][0]": 5,
    }
    assert [leaf for _, leaf in named_leaves(tree)] == pytree.tree_leaves(tree)


def test_names_of_a_mapping_are_those_of_its_leaves() -> None:
    assert dict(named_leaves(Sorted(b="B", a="A"))) == {"[0]": "A", "[1]": "B"}


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Output:
        return Output(sample=self.layer(x).sin(), row=Row(x))


class Diffuser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: Tensor, given: Output) -> Output:
        return Output(sample=self.inner(x)["sample"] * given["scale"])


def test_a_model_that_takes_and_returns_them() -> None:
    report = compare(Diffuser(), (torch.randn(2, 3), Output(scale=torch.rand(3))), backward=True)
    assert report.verdict == "agree"
    assert {row.name for row in report.outputs if row.kind == "output"} == {"['sample']"}
    assert "inner" in {row.module for row in report.modules}
