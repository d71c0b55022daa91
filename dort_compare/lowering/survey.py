"""Walks an FX graph that cannot be lowered whole, and finds every node that stands in the way."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir
from torch import fx
from torch._subclasses.fake_tensor import unset_fake_temporarily

from dort_compare.errors import DortError, UnsupportedGraphError, one_line
from dort_compare.fx_graph import call_of
from dort_compare.lowering.builder import Builder
from dort_compare.lowering.foreign import foreign_kind
from dort_compare.lowering.lower import Walk
from dort_compare.problems import said
from dort_compare.provenance import Phase


@dataclass(frozen=True)
class Survey:
    """``refused``: the calls that cannot be lowered, each with the reason. ``graph``: the ONNX nodes of all others."""

    refused: Mapping[fx.Node, str]
    graph: ir.Graph


def survey(graph_module: fx.GraphModule, phase: Phase, target_opset: int) -> Survey:
    """Lowers every node that can be lowered, each on typed stand-ins for what the others would have computed.

    Whatever a lowering raises is a refusal, a fault of its own too: this is for a graph that has been refused already.
    """
    with unset_fake_temporarily():
        walk = _TolerantWalk(graph_module, phase, Builder.of_new_graph(phase, target_opset))
        walk.visit_all()
    return Survey(walk.refused, walk.graph)


class _TolerantWalk(Walk):
    def __init__(self, graph_module: fx.GraphModule, phase: Phase, builder: Builder) -> None:
        super().__init__(graph_module, phase, builder)
        self.refused: dict[fx.Node, str] = {}

    def visit_all(self) -> None:
        for node in self.graph_module.graph.nodes:
            if node.op == "output":
                continue
            if call_of(node) in self.refused:
                self.values[node] = self._stand_in(node)
                continue
            written = len(self.graph)
            try:
                self._refuse_early(node)
                self.visit(node)
            except Exception as problem:  # noqa: BLE001  (any fault of a lowering)
                begun = itertools.islice(reversed(self.graph), len(self.graph) - written)
                self.graph.remove(list(begun))
                self._refuse(node, reason_of(problem))

    def _refuse_early(self, node: fx.Node) -> None:
        """Refuses a call without lowering, and one whose operands no ONNX value can stand for."""
        if node.op != "call_function" or node.target is operator.getitem:
            return
        if node.target not in self.lowerings:
            raise UnsupportedGraphError("no lowering")
        kind = next(filter(None, (foreign_kind(operand.meta.get("val")) for operand in node.all_input_nodes)), None)
        if kind is not None:
            raise UnsupportedGraphError(f"it takes {kind}")

    def _refuse(self, node: fx.Node, reason: str) -> None:
        """Notes the call whose result ``node`` is, and lets what reads it go on with a stand-in."""
        self.values[node] = self._stand_in(node)
        if node.op not in ("placeholder", "get_attr"):
            self.refused.setdefault(call_of(node), reason)

    def _stand_in(self, node: fx.Node) -> ir.Value | None:
        meta = node.meta.get("val")
        if meta is None or isinstance(meta, (tuple, list)) or foreign_kind(meta):
            return None
        value = ir.Value(name=node.name)
        self.stamp(value, node, meta)
        return value


def reason_of(problem: Exception) -> str:
    """The reason in one line; for an error that is none of ours, its type as well."""
    if isinstance(problem, UnsupportedGraphError):
        return problem.reason
    return said(problem) if isinstance(problem, DortError) else one_line(problem)
