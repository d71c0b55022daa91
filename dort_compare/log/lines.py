"""A graph as text: the modules that it enters and leaves and, in full, each operator beneath its module."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from torch import fx

from dort_compare import provenance
from dort_compare.descriptors import Role, results, role_of, saved_values
from dort_compare.fx_graph import graph_of
from dort_compare.log.values import argument_text, node_text
from dort_compare.log.visits import ModuleCall, Visit, visits


@dataclass(frozen=True)
class Fate:
    """What became of the nodes of a graph, by name.

    ``casts``: the ONNX Cast nodes around or within what computes a node. ``in_torch``: why it runs in eager torch.
    """

    casts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    in_torch: Mapping[str, str] = field(default_factory=dict)


def graph_lines(title: str, graph_module: fx.GraphModule, fate: Fate, *, operators: bool) -> Iterator[str]:
    """The modules of a graph with what they read, own and return, as the graph enters and leaves them.

    With ``operators`` every call stands in between, once, as ``name(arguments) -> result``, with its source line and
    its ``fate``. The graphs that a higher-order operator runs stand beneath it.
    """
    yield title
    for node in graph_module.graph.nodes:
        if _is_given(node):
            yield f"  {_entitled(role_of(node), node)}"
    yield from _indented(_Writer(graph_module, fate, operators).body())
    for value, role in results(graph_module.graph):
        if isinstance(value, fx.Node):
            yield f"  {_entitled(role, value)}"


class _Writer:
    """Writes the lines of one graph, without those of what it takes and returns."""

    def __init__(self, graph_module: fx.GraphModule, fate: Fate, operators: bool) -> None:
        self.graph_module = graph_module
        self.fate = fate
        self.operators = operators
        self.saved = saved_values(graph_module.graph)

    def body(self) -> Iterator[str]:
        return self._steps(visits(node for node in self.graph_module.graph.nodes if node.op.startswith("call_")))

    def _steps(self, visit: Visit) -> Iterator[str]:
        for node in _read(visit.own):
            if node.op == "placeholder" and not _is_given(node):
                yield _entitled(role_of(node), node)
        for step in visit.steps:
            yield from self._call(step) if isinstance(step, fx.Node) else self._module(step)

    def _module(self, visit: Visit) -> Iterator[str]:
        assert visit.call is not None
        nodes = dict.fromkeys(visit.nodes())
        entries = [node for node in _read(nodes) if node not in nodes and (node.op != "placeholder" or _is_given(node))]
        exits = [node for node in nodes if self._is_read_outside(node, nodes)]
        yield f"enter {_title(visit.call)}({_listed(entries)})"
        yield from _indented(self._steps(visit))
        yield f"leave {_title(visit.call)}{' -> ' * bool(exits)}{_listed(exits)}"

    def _is_read_outside(self, node: fx.Node, nodes: Mapping[fx.Node, None]) -> bool:
        return any(node not in self.saved if user.op == "output" else user not in nodes for user in node.users)

    def _call(self, node: fx.Node) -> Iterator[str]:
        if self.operators:
            arguments = [*map(argument_text, node.args), *(f"{k}={argument_text(v)}" for k, v in node.kwargs.items())]
            remarks = [provenance.source_line(node) or "source line unknown"]
            if node.name in self.fate.in_torch:
                remarks.append(f"in eager torch: {self.fate.in_torch[node.name]}")
            yield f"{_name(node)}({', '.join(arguments)}) -> {node_text(node)}  # {', '.join(remarks)}"
            yield from _indented(self.fate.casts.get(node.name, ()))
        for operand in node.all_input_nodes:
            graph_module = graph_of(operand)
            if graph_module is not None and next(iter(operand.users)) is node:
                yield from _indented(_nested_lines(operand.name, graph_module, self.operators))


def _nested_lines(name: str, graph_module: fx.GraphModule, operators: bool) -> Iterator[str]:
    given = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
    returned = [value for value, _ in results(graph_module.graph) if isinstance(value, fx.Node)]
    yield f"enter {name}({_listed(given)})"
    yield from _indented(_Writer(graph_module, Fate(), operators).body())
    yield f"leave {name} -> {_listed(returned)}"


def _is_given(node: fx.Node) -> bool:
    """Whether a node is an input of its graph, and neither parameter nor buffer."""
    return node.op == "placeholder" and role_of(node).kind == "input"


def _read(nodes: Iterable[fx.Node]) -> dict[fx.Node, None]:
    """What nodes read, in order."""
    return dict.fromkeys(operand for node in nodes for operand in node.all_input_nodes)


def _entitled(role: Role, node: fx.Node) -> str:
    return f"{role}{' =' * bool(role.name)} {node_text(node)}"


def _name(node: fx.Node) -> str:
    return provenance.target_name(node) if node.op == "call_function" else str(node.target)


def _title(call: ModuleCall) -> str:
    name = f"{call.path}, call {call.number}" if call.number > 1 else call.path
    return f"{name}: {call.kind}" if name else call.kind


def _listed(nodes: Iterable[fx.Node]) -> str:
    return ", ".join(map(node_text, nodes))


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)
