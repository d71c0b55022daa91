"""Regions of a dynamo graph that are traced once and called again and again: each call is written out in its place."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import fx

from dort_compare.backends.graph_copies import put_in_place
from dort_compare.fx_graph import attribute_of, graphs_within
from dort_compare.node_meta import MODULES, moved_key
from dort_compare.provenance import dotted_path

_Stack = Mapping[str, tuple[str, Any]]
_Moves = Mapping[str, str]
"""From the paths of the modules that a region was traced with to those of the modules of one of its calls."""
_Traced = Mapping[fx.GraphModule, fx.Node]
"""By region the call that it was traced at."""


def write_out_regions(graph_module: fx.GraphModule) -> None:
    """Puts the nodes of each ``torch.compiler.nested_compile_region`` in the place of its calls, in nested graphs too.

    Torch traces calls that are alike into one graph, whose nodes say that they stem from the modules of the first of
    them; here they are said to stem from those of their own.
    """
    if traced_at := _traced_at(graph_module):
        sources = {node.name: _source(node) for node in graph_module.graph.find_nodes(op="placeholder")}
        _write_out_in(graph_module, sources, traced_at)


def _write_out_in(graph_module: fx.GraphModule, sources: Mapping[str, str], traced_at: _Traced) -> None:
    for nested in graph_module.children():
        if isinstance(nested, fx.GraphModule):
            _write_out_in(nested, sources, traced_at)
    calls = _calls(graph_module)
    for call in calls:
        _write_out(call, sources, traced_at[_region(call)])
    if calls:
        graph_module.delete_all_unused_submodules()
        graph_module.recompile()


def _calls(graph_module: fx.GraphModule) -> list[fx.Node]:
    target = torch.ops.higher_order.invoke_subgraph
    return list(graph_module.graph.find_nodes(op="call_function", target=target))


def _traced_at(graph_module: fx.GraphModule) -> _Traced:
    """The modules around that call are around every node of the region."""
    found: dict[fx.GraphModule, fx.Node] = {}
    for graph in graphs_within(graph_module):
        for call in _calls(graph):
            region = _region(call)
            if region not in found or (len(_levels(call)) > len(_levels(found[region])) and _is_around(call, region)):
                found[region] = call
    return found


def _is_around(call: fx.Node, region: fx.GraphModule) -> bool:
    around = [*_levels(call)]
    stacks = [[*_levels(node)] for node in region.graph.nodes if _levels(node)]
    return all(stack[: len(around)] == around for stack in stacks)


def _levels(node: fx.Node) -> _Stack:
    return node.meta.get(MODULES) or {}


def _source(node: fx.Node) -> str:
    """The path of a parameter, or the name of an argument; "" for what dynamo does not know by name."""
    given = node.meta.get("grapharg")
    return dotted_path(given.source.name) if given is not None and given.source is not None else ""


def _region(call: fx.Node) -> fx.GraphModule:
    holder = call.args[0]
    assert isinstance(holder, fx.Node)
    region = attribute_of(holder)
    assert isinstance(region, fx.GraphModule)
    return region


def _given(call: fx.Node) -> dict[fx.Node, Any]:
    """By placeholder of the region what the call gives it."""
    return dict(zip(_region(call).graph.find_nodes(op="placeholder"), call.args[2:], strict=True))


def _write_out(call: fx.Node, sources: Mapping[str, str], traced_at: fx.Node) -> None:
    given = _given(call)
    parameters = ((sources.get(name.name, ""), sources.get(str(each), "")) for name, each in given.items())
    moves = _moves(parameters, _innermost(traced_at), _innermost(call))
    copies = put_in_place(call, _region(call), given)

    def relocated(stack: _Stack) -> _Stack:
        inside = list(stack.items())[len(_levels(traced_at)) :]
        paths = [(key, dotted_path(path), kind) for key, (path, kind) in inside]
        moved = {moved_key(key, path, call): (_moved(path, moves), kind) for key, path, kind in paths}
        return {**_levels(call), **moved}

    if call is not traced_at:
        _relocate(copies, relocated)


def _relocate(nodes: Iterable[fx.Node], relocated: Callable[[_Stack], _Stack]) -> None:
    """Says of nodes where they are, and of those in graphs that they hold, as other calls of the region do."""
    for node in nodes:
        node.meta[MODULES] = relocated(_levels(node))
        held = node.op == "get_attr" and getattr(node.graph.owning_module, str(node.target), None)
        if isinstance(held, fx.GraphModule):
            own = fx.GraphModule(held, copy.deepcopy(held.graph))
            _relocate(own.graph.nodes, relocated)
            setattr(node.graph.owning_module, str(node.target), own)


def _innermost(call: fx.Node) -> str:
    """The path of the module that makes a call, or that the region is of."""
    *_, path = ("", *(dotted_path(path) for path, _ in _levels(call).values()))
    return path


def _moves(parameters: Iterable[tuple[str, str]], traced_in: str, called_in: str) -> _Moves:
    """As the paths of the two calls, and of their parameters, tell, which differ in front.

    A parameter that is outside of the module of the one call only is tied to another module's, and tells nothing.
    """
    found: dict[str, str] = {}
    within = [(f"{traced_in}.", f"{called_in}.")] if traced_in and called_in and traced_in != called_in else []
    for traced, given in (*parameters, *within):
        if any(traced.startswith(one) and not given.startswith(other) for one, other in within):
            continue
        before, after = traced.split("."), given.split(".")
        while before and after and before.pop() == after.pop() and before != after:
            found.setdefault(".".join(before), ".".join(after))
    return found


def _moved(path: str, moves: _Moves) -> str:
    """A module without parameters goes where the one goes that it is in."""
    names = path.split(".")
    for cut in range(len(names), -1, -1):
        if (head := ".".join(names[:cut])) in moves:
            return ".".join(filter(None, [moves[head], *names[cut:]]))
    return path
