"""FX graphs as strict JSON: nodes in order, each with its target by name, its arguments, and what torch traced."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx._lazy_graph_module import _LazyGraphModule

from dort_compare.dump.arguments import Json, Place, decoded, encoded, placed
from dort_compare.dump.traced import decoded_meta, encoded_meta
from dort_compare.errors import DumpError, UnsupportedGraphError
from dort_compare.fx_graph import attribute_of
from dort_compare.provenance import target_name

FindTarget = Callable[[str], Callable[..., Any] | None]
"""From the name of a target to what may be called in a graph of a dump; None for anything else."""
_GETITEM = "operator.getitem"


def graph_text(graph_module: fx.GraphModule) -> tuple[str, dict[str, torch.Tensor]]:
    """The graph as JSON, and its constants by the names of the nodes that read them.

    Raises UnsupportedGraphError for what JSON cannot hold, such as custom objects among the arguments.
    """
    constants: dict[str, torch.Tensor] = {}
    nodes = _nodes(graph_module, constants, "")
    lines = ",\n".join(json.dumps(node, allow_nan=False) for node in nodes)
    return f'{{"nodes": [\n{lines}\n]}}\n', constants


def _nodes(graph_module: fx.GraphModule, constants: dict[str, torch.Tensor], within: str) -> list[Json]:
    """The nodes of a graph as JSON; ``constants`` grows by what they read, by names that begin with ``within``."""
    names: dict[str, str] = {}
    nodes = []
    for node in graph_module.graph.nodes:
        data: dict[str, Json] = {"op": node.op, "name": node.name}
        if node.op == "get_attr":
            held = attribute_of(node)
            if isinstance(held, fx.GraphModule):
                data["graph"] = {"nodes": _nodes(held, constants, f"{within}{node.name}:")}
            else:
                name = data["constant"] = names.setdefault(str(node.target), within + node.name)
                constants[name] = _constant(node, held)
                node.meta.setdefault("val", held)
        elif node.op == "call_function":
            data["target"] = target_name(node)
        elif node.op not in ("placeholder", "output"):
            raise UnsupportedGraphError(f"FX node {node.name} is a {node.op}, which a dump cannot hold")
        if node.op in ("call_function", "output"):
            data["args"] = [encoded(argument) for argument in node.args]
            data["kwargs"] = {name: encoded(argument) for name, argument in node.kwargs.items()}
        nodes.append(data | encoded_meta(node))
    return nodes


def _constant(node: fx.Node, value: object) -> torch.Tensor:
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        raise UnsupportedGraphError(f"FX node {node.name} is a nested {type(value).__name__}, which a dump cannot hold")
    return value


def read_graph(
    text: str, constants: Mapping[str, torch.Tensor], find_target: FindTarget, place: Place
) -> fx.GraphModule:
    """The graph that ``graph_text`` made JSON of. Nothing is run, and no code is made of it.

    Raises DumpError for a target that ``find_target`` does not know; KeyError, TypeError, ValueError, AttributeError,
    RuntimeError or RecursionError for what ``graph_text`` would not have written.
    """
    with FakeTensorMode():
        data = json.loads(text, parse_constant=_refuse_number)
        return _Reader(constants, find_target, place).graph_module(data["nodes"])


def _refuse_number(name: str) -> None:
    raise ValueError(f"{name} is no number of strict JSON")


class _Reader:
    def __init__(self, constants: Mapping[str, torch.Tensor], find_target: FindTarget, place: Place) -> None:
        self.constants = constants
        self.find_target = find_target
        self.place = place
        self.graph = fx.Graph()
        self.root = nn.Module()
        self.nodes: dict[str, fx.Node] = {}
        self.is_complete = False

    def graph_module(self, nodes: list[Json]) -> fx.GraphModule:
        for data in nodes:
            self.add(data)
        if not self.is_complete:
            raise ValueError("the graph has no output")
        return _LazyGraphModule(self.root, self.graph)

    def add(self, data: dict[str, Json]) -> None:
        op, name = data["op"], data["name"]
        if self.is_complete or not isinstance(name, str) or not name.isidentifier() or name in self.nodes:
            raise ValueError(f"a node {str(name)[:80]!r} cannot stand there")
        args = decoded(data.get("args", []), self.nodes, self.place)
        kwargs = {str(key): decoded(each, self.nodes, self.place) for key, each in data.get("kwargs", {}).items()}
        if op == "output" and (len(args) != 1 or kwargs):
            raise ValueError("an output takes one argument")
        node = self.graph.create_node(op, self._target(op, name, data), tuple(args), kwargs, name)
        node.name = name  # create_node avoids names of Python's, such as sum
        node.meta = decoded_meta(data, self.place)
        self.nodes[name] = node
        self.is_complete = op == "output"

    def _target(self, op: str, name: str, data: dict[str, Json]) -> Any:
        if op == "call_function":
            return self._function(name, data["target"])
        if op == "get_attr" and "graph" in data:
            nested = _Reader(self.constants, self.find_target, self.place).graph_module(data["graph"]["nodes"])
            self.root.add_module(f"graph_{name}", nested)
            return f"graph_{name}"
        if op == "get_attr":
            attribute = f"constant_{data['constant']}"
            if not hasattr(self.root, attribute):
                device = placed(data["val"]["device"], self.place)
                self.root.register_buffer(attribute, self.constants[data["constant"]].to(device))
            return attribute
        if op not in ("placeholder", "output"):
            raise ValueError(f"node {name} is a {str(op)[:80]!r}")
        return name

    def _function(self, name: str, target: Json) -> Callable[..., Any]:
        found = None
        if isinstance(target, str):
            found = operator.getitem if target == _GETITEM else self.find_target(target)
        if found is None:
            raise DumpError(f"FX node {name} calls {str(target)[:80]!r}, which graphs of a dump may not call")
        return found
