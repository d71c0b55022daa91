"""Regions of a dynamo graph that are traced once and called again and again: each call is written out in its place."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import fx

from dort_compare.backends.graph_copies import put_in_place
from dort_compare.provenance import dotted_path

AT_PATH = "at:"
"""Begins the key, in a module stack, of a module of which the path alone is known, not the ``id``."""
_STACK = "nn_module_stack"
_Stack = Mapping[str, tuple[str, Any]]
_Moves = Mapping[str, str]
"""From the paths of the modules that a region was traced with to those of the modules of one of its calls."""


def write_out_regions(graph_module: fx.GraphModule) -> None:
    """Puts the nodes of each ``torch.compiler.nested_compile_region`` in the place of its calls, in nested graphs too.

    Torch traces calls that are alike into one graph, whose nodes say that they stem from the modules of the first of
    them; here they are said to stem from those of their own.
    """
    sources = {node.name: _source(node) for node in graph_module.graph.find_nodes(op="placeholder")}
    _write_out_in(graph_module, sources)


def _write_out_in(graph_module: fx.GraphModule, sources: Mapping[str, str]) -> None:
    for nested in graph_module.children():
        if isinstance(nested, fx.GraphModule):
            _write_out_in(nested, sources)
    calls = graph_module.graph.find_nodes(op="call_function", target=torch.ops.higher_order.invoke_subgraph)
    for call in calls:
        _write_out(call, sources)
    if calls:
        graph_module.delete_all_unused_submodules()
        graph_module.recompile()


def _source(node: fx.Node) -> str:
    """The path of a parameter, or the name of an argument; "" for what dynamo does not know by name."""
    given = node.meta.get("grapharg")
    return dotted_path(given.source.name) if given is not None and given.source is not None else ""


def _region(call: fx.Node) -> fx.GraphModule:
    holder = call.args[0]
    assert isinstance(holder, fx.Node)
    region = operator.attrgetter(str(holder.target))(call.graph.owning_module)
    assert isinstance(region, fx.GraphModule)
    return region


def _given(call: fx.Node) -> dict[fx.Node, Any]:
    """By placeholder of the region what the call gives it."""
    return dict(zip(_region(call).graph.find_nodes(op="placeholder"), call.args[2:], strict=True))


def _write_out(call: fx.Node, sources: Mapping[str, str]) -> None:
    given = _given(call)
    moves = _moves((sources.get(name.name, ""), sources.get(str(each), "")) for name, each in given.items())
    around = call.meta.get(_STACK) or {}
    for copy in put_in_place(call, _region(call), given):
        copy.meta[_STACK] = _stack(copy.meta.get(_STACK) or {}, around, moves)


def _moves(sources: Iterable[tuple[str, str]]) -> _Moves:
    """As the parameters of the two calls tell, whose paths differ in front."""
    found: dict[str, str] = {}
    for traced, given in sources:
        before, after = traced.split("."), given.split(".")
        while before and after and before.pop() == after.pop():
            found.setdefault(".".join(before), ".".join(after))
    return found


def _moved(path: str, moves: _Moves) -> str:
    """A module without parameters goes where the one goes that it is in."""
    names = path.split(".")
    for cut in range(len(names), -1, -1):
        if (head := ".".join(names[:cut])) in moves:
            return ".".join(filter(None, [moves[head], *names[cut:]]))
    return path


def _stack(traced: _Stack, around: _Stack, moves: _Moves) -> _Stack:
    """The modules around a node of a region, in a call that has those ``around`` it."""
    known = {dotted_path(path) for path, _ in around.values()}
    found = dict(around)
    for key, (path, kind) in traced.items():
        here = dotted_path(path)
        there = _moved(here, moves)
        if there not in known:
            found[key if there == here else AT_PATH + there] = (path if there == here else there, kind)
    return found
