"""A graph whose submodules are programs, run one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx, nn
from torch.fx.graph import _BoxedCodeGen

from dort_compare.runtime.boxed import Boxed, as_boxed
from dort_compare.signature import Signature


def pieces_of(split: fx.GraphModule) -> Mapping[str, fx.GraphModule]:
    """The submodules that a graph calls, by name, in order."""
    names = [str(node.target) for node in split.graph.nodes if node.op == "call_module"]
    return {name: getattr(split, name) for name in names}


def install(split: fx.GraphModule, name: str, boxed: Boxed, signature: Signature) -> None:
    """Puts a program in the place of the submodule that it was made from."""
    setattr(split, name, _Piece(boxed, signature))


def in_order(split: fx.GraphModule) -> Boxed:
    """Runs a graph, each value freed after its last reader: by the code that fx makes of it, without what an
    ``fx.Interpreter`` does around each node."""
    split.graph.set_codegen(_BoxedCodeGen())
    split.recompile()

    @as_boxed
    def call(arguments: list[Any]) -> Any:
        with torch.no_grad():
            return split.forward(arguments)

    return call


class _Piece(nn.Module):
    """A program as a module.

    What torch's kernels hand to it need not have the dtype that torch traced: ``prims.signbit`` is traced as the dtype
    of its operand and returns booleans.
    """

    def __init__(self, boxed: Boxed, signature: Signature) -> None:
        super().__init__()
        self.boxed = boxed
        self.dtypes = [graph_input.dtype for graph_input in signature.inputs]

    def forward(self, *arguments: Any) -> Any:
        return self.boxed([a if d is None else a.to(d) for a, d in zip(arguments, self.dtypes, strict=True)])
