"""A graph whose submodules are programs, run one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx, nn
from torch.fx.graph import _BoxedCodeGen

from dort_compare.checks import CHECK_ERRORS, Check, check_of
from dort_compare.generated import made_code
from dort_compare.runtime.boxed import Boxed, as_boxed
from dort_compare.signature import Signature


def pieces_of(split: fx.GraphModule) -> Mapping[str, fx.GraphModule]:
    """The submodules that a graph calls, by name, in order."""
    names = [str(node.target) for node in split.graph.nodes if node.op == "call_module"]
    return {name: getattr(split, name) for name in names}


def install(split: fx.GraphModule, name: str, boxed: Boxed, signature: Signature) -> None:
    """Puts a program in the place of the submodule that it was made from."""
    setattr(split, name, _Piece(boxed, signature))


def boxed_graph(split: fx.GraphModule) -> Boxed:
    """Runs a graph, each value freed after its last reader: by the code that fx makes of it, without what an
    ``fx.Interpreter`` does around each node."""
    for node in split.graph.nodes:
        _verify_ours(split, node)
    run = made_code(split, _BoxedCodeGen())

    @as_boxed
    def call(arguments: list[Any]) -> Any:
        with torch.no_grad():
            return run(arguments)

    return call


def _verify_ours(split: fx.GraphModule, node: fx.Node) -> None:
    """Has a condition that the graph asserts raise our error, as it does within a piece; that of a factorization is
    torch's in any case."""
    check = check_of(node)
    if check is not None and node.target is not CHECK_ERRORS:
        split.add_module(node.name, _Verified(check))
        node.op, node.target, node.args = "call_module", node.name, node.args[:1]


class _Verified(nn.Module):
    """A check as a module."""

    def __init__(self, check: Check) -> None:
        super().__init__()
        self.check = check

    def forward(self, value: Any) -> None:
        self.check.verify(value)


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
