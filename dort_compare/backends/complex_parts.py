"""Complex arithmetic in a graph, written out in that of real and imaginary parts, which have lowerings.

What is left of complex tensors are those that the graph takes, returns or transforms (``torch.fft``), between
``view_as_real`` and ``view_as_complex``, and those of operators without a rule.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._guards import detect_fake_mode
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from dort_compare.backends.calls import add_call
from dort_compare.backends.complex_arithmetic import Parts
from dort_compare.backends.complex_rules import ARITHMETIC, RULES
from dort_compare.dtypes import real_dtype
from dort_compare.errors import one_line
from dort_compare.layouts import inverse, layout_of
from dort_compare.lowering.foreign import TRANSFORMS, is_complex
from dort_compare.provenance import described
from dort_compare.views import moves_nothing

aten = torch.ops.aten

_LOG = logging.getLogger("dort_compare.backends")


def write_out_complex(graph_module: fx.GraphModule) -> None:
    """Puts operators on real and imaginary parts in the place of those on complex tensors that have a rule."""
    nodes = list(graph_module.graph.nodes)
    if any(map(is_complex, nodes)):
        mode = detect_fake_mode([node.meta.get("val") for node in nodes])
        assert mode is not None
        with mode, torch.no_grad():
            _WritingOut(graph_module.graph, _placed(nodes)).visit_all(nodes)
        graph_module.recompile()


def _placed(nodes: Sequence[fx.Node]) -> set[fx.Node]:
    """Views of inputs of which torch reads at run time how they lie in memory, as sizes or offsets depend on data."""
    views: set[fx.Node] = set()
    for node in nodes:
        if node.op == "placeholder" or (moves_nothing(node) and not views.isdisjoint(node.all_input_nodes)):
            views.add(node)
    read: set[fx.Node] = set()
    for node in reversed(nodes):
        if node.op == "output":
            read.update(each for each in node.all_input_nodes if free_unbacked_symbols(each.meta.get("val")))
        elif node.target is aten.sym_storage_offset.default or (node in read and node in views):
            read.update(node.all_input_nodes)
    return read & views


@dataclass
class _Complex:
    """A complex value: the node that holds it whole, or its parts, each made of the other when it is asked for."""

    whole: fx.Node | None = None
    parts: Parts | None = None


class _WritingOut:
    """Goes through a graph in order, and writes calls before the node that it has come to."""

    def __init__(self, graph: fx.Graph, placed: set[fx.Node]) -> None:
        self.graph = graph
        self.placed = placed
        self.known: dict[fx.Node, _Complex] = {}
        self.shown: dict[fx.Node, Parts] = {}
        """The parts that a real tensor shows in its last dimension."""
        self.written: list[fx.Node] = []
        self.replaced: list[fx.Node] = []
        self.node: fx.Node

    def visit_all(self, nodes: Sequence[fx.Node]) -> None:
        """Visits every node, and takes out what nothing reads any more."""
        for node in nodes:
            self.node = node
            with self.graph.inserting_before(node):
                self._visit(node)
        for unread in (*reversed(self.written), *reversed(self.replaced)):
            if not unread.users:
                self.graph.erase_node(unread)

    def _visit(self, node: fx.Node) -> None:
        if node.op in ("placeholder", "get_attr"):
            if is_complex(node):
                self.known[node] = _Complex(node)
        elif node in self.placed:
            self._leave(node)
        elif (part := self._selected(node)) is not None:
            self._replace(node, part)
        elif not is_complex(node) and not any(map(is_complex, node.all_input_nodes)):
            return
        elif node.target is aten.view_as_real.default:
            self._show(node)
        elif node.target is aten.view_as_complex.default:
            self.known[node] = _Complex(node, self.shown.get(node.all_input_nodes[0]))
        elif node.target not in RULES and node.target is not operator.getitem:
            self._leave(node)
        else:
            self._write_out(node)

    def _selected(self, node: fx.Node) -> fx.Node | None:
        """The part that a node selects of those that a real tensor shows; None where it does something else."""
        parts = self.shown.get(node.all_input_nodes[0]) if node.target is aten.select.int else None
        if parts is None or node.args[1] not in (-1, node.meta["val"].ndim):
            return None
        return parts.imag if node.args[2] in (1, -1) else parts.real

    def _show(self, node: fx.Node) -> None:
        held = self.known[node.all_input_nodes[0]]
        if held.parts is None:
            return
        self.shown[node] = held.parts
        stacked = self._stacked(held.parts)
        self.shown[stacked] = held.parts
        self._replace(node, stacked)

    def _leave(self, node: fx.Node) -> None:
        """Lets a node take complex tensors whole, as it does; of a transform the parts are shown, to be compared."""
        for operand in node.all_input_nodes:
            if is_complex(operand):
                node.replace_input_with(operand, self._whole(operand))
        if node.target in TRANSFORMS and is_complex(node):
            with self.graph.inserting_before(node.next):
                self.known[node] = _Complex(self._write(aten.view_as_complex.default, self._pairs(node)))
        elif is_complex(node):
            self.known[node] = _Complex(node)

    def _write_out(self, node: fx.Node) -> None:
        try:
            result = self._result(node)
        except Exception as problem:  # noqa: BLE001  (whatever it is, the node can run as it stands)
            _LOG.debug("%s is not written out: %s", described(node), one_line(problem))
            self._leave(node)
            return
        if is_complex(node):
            self.known[node] = _Complex(parts=result)
            self.replaced.append(node)
        else:
            self._replace(node, result)

    def _result(self, node: fx.Node) -> Any:
        args: Any
        args, options = fx.map_arg((node.args, node.kwargs), self._given)
        if node.target is operator.getitem:
            return Parts(*(self._write(operator.getitem, part, args[1]) for part in args[0]))
        result = RULES[node.target](self._write, *args, **options)
        if not is_complex(node):
            return self._fitting(result.real if isinstance(result, Parts) else result, node)
        return Parts(*(self._fitting(part, node) for part in result))

    def _given(self, operand: fx.Node) -> Any:
        """An operand, or its parts; of arithmetic, as in torch, in the dtype of the result."""
        is_widened = self.node.target in ARITHMETIC and isinstance(operand.meta["val"], torch.Tensor)
        if not is_complex(operand):
            return self._fitting(operand, self.node) if is_widened else operand
        parts = self._parts(operand)
        return Parts(*(self._fitting(part, self.node) for part in parts)) if is_widened else parts

    def _fitting(self, part: fx.Node, node: fx.Node) -> fx.Node:
        """A part in the dtype that torch traced for the whole; each of several results has it."""
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor) or part.meta["val"].dtype == real_dtype(value.dtype):
            return part
        return self._write(aten._to_copy.default, part, dtype=real_dtype(value.dtype))

    def _parts(self, node: fx.Node) -> Parts:
        held = self.known[node]
        if held.parts is None:
            assert held.whole is not None
            pairs = self._pairs(held.whole)
            held.parts = Parts(*(self._write(aten.select.int, pairs, -1, part) for part in (0, 1)))
        return held.parts

    def _pairs(self, whole: fx.Node) -> fx.Node:
        if whole.target is aten.view_as_complex.default:
            return whole.all_input_nodes[0]
        plain = self._write(aten.resolve_conj.default, whole) if whole.meta["val"].is_conj() else whole
        return self._write(aten.view_as_real.default, plain)

    def _whole(self, node: fx.Node) -> fx.Node:
        held = self.known[node]
        if held.whole is None:
            assert held.parts is not None
            held.whole = self._laid_out(held.parts, layout_of(node.meta["val"]))
        return held.whole

    def _laid_out(self, parts: Parts, order: Sequence[int] | None) -> fx.Node:
        """The whole of parts, with its dimensions in ``order`` in memory, as torch has traced it."""
        if order is None or order == tuple(range(len(order))):
            return self._write(aten.view_as_complex.default, self._stacked(parts))
        moved = Parts(*(self._write(aten.permute.default, part, [*order]) for part in parts))
        pairs = self._write(aten.permute.default, self._stacked(moved), [*inverse(order), len(order)])
        return self._write(aten.view_as_complex.default, pairs)

    def _stacked(self, parts: Parts) -> fx.Node:
        columns = [self._write(aten.unsqueeze.default, part, -1) for part in parts]
        return self._write(aten.cat.default, columns, -1)

    def _write(self, target: Any, *args: Any, **options: Any) -> fx.Node:
        call = add_call(self.graph, self.node, target, *args, **options)
        self.written.append(call)
        return call

    def _replace(self, node: fx.Node, result: fx.Node) -> None:
        node.replace_all_uses_with(result)
        self.replaced.append(node)
