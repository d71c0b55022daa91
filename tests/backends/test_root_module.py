"""Paths of modules are those of ``named_modules``, whatever ``forward`` calls the module it is called on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dort_compare import DebugBackend, compare


def decorated(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Tensor:
        return function(*args, **kwargs)

    return inner


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(4, 4)
        self.act = nn.ModuleDict({"it's": nn.GELU()})

    def forward(self, x: Tensor) -> Tensor:
        return self.act["it's"](self.up(x))


class Named(Plain):
    def forward(me, x: Tensor) -> Tensor:  # noqa: N805
        return me.act["it's"](me.up(x))


class Decorated(Plain):
    @decorated
    def forward(self, x: Tensor) -> Tensor:
        return self.act["it's"](self.up(x))


class WithKeywords(Plain):
    def forward(*args: Any, flag: bool = True) -> Tensor:
        return args[0].act["it's"](args[0].up(args[1]))


class Broken(Plain):
    def forward(me, x: Tensor) -> Tensor:  # noqa: N805
        y = me.up(x)
        torch._dynamo.graph_break()
        return me.act["it's"](y)


class DecoratedAndBroken(Plain):
    @decorated
    def forward(me, x: Tensor) -> Tensor:  # noqa: N805
        y = me.up(x)
        torch._dynamo.graph_break()
        return me.act["it's"](y)


MODELS = [Plain, Named, Decorated, WithKeywords, Broken, DecoratedAndBroken]


@pytest.mark.parametrize("kind", MODELS)
def test_the_module_that_is_compiled_is_the_root(kind: type[nn.Module]) -> None:
    report = compare(kind(), (torch.ones(2, 4),), backward=True)
    assert {row.module for row in report.rows} == {"up", "act.it's"}
    assert len(report.graph_breaks) == ("Broken" in kind.__name__)


def test_a_module_that_a_function_reads_keeps_its_name() -> None:
    backend = DebugBackend()

    def function(model: nn.Module, x: Tensor) -> Tensor:
        return model.up(x)

    torch.compile(function, backend=backend)(Plain(), torch.ones(2, 4))
    modules = {entry.value for node in backend.graphs[0].onnx_model.graph.node for entry in node.metadata_props
               if entry.key == "dort_compare.module"}  # fmt: skip
    assert modules == {"model.up"}
