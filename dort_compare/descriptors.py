"""What a graph of AOTAutograd takes and returns, in the caller's words, read off torch's descriptors of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx, nn
from torch._functorch._aot_autograd import descriptors as aot

from dort_compare.fx_graph import returned_by
from dort_compare.node_meta import GIVEN
from dort_compare.provenance import dotted_path, plain_source


@dataclass(frozen=True)
class Role:
    """What an input or output of a graph is to the caller.

    ``kind`` of an input: "parameter", "buffer", "input"; of an output: "output", "gradient", "new value" (of what the
    model writes in place), "saved" (for the backward graph). ``name`` is the caller's name of the input, or of the one
    that the output belongs to; "" where there is none.
    """

    kind: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind}{' of' * (self.kind in _OF)} {self.name}" if self.name else self.kind


_OF = ("gradient", "new value")


def is_token(node: fx.Node) -> bool:
    """Whether an input of a graph is a token, which keeps calls with effects in their order and holds nothing."""
    return isinstance(node.meta.get("desc"), (aot.ForwardTokenAOTInput, aot.BackwardTokenAOTInput))


def given_to(graph_module: fx.GraphModule) -> list[Role]:
    """What a graph of dynamo takes, in order."""
    return [_given(node) for node in graph_module.graph.nodes if node.op == "placeholder"]


def _given(node: fx.Node) -> Role:
    argument = node.meta.get("grapharg")
    source = getattr(argument, "source", None)
    if argument is None or source is None or not argument.is_tensor:
        return Role("input")
    name = plain_source(source.name)
    if "._parameters[" in name or isinstance(argument.example, nn.Parameter):
        return Role("parameter", dotted_path(name))
    return Role("buffer" if "._buffers[" in name else "input", dotted_path(name))


def attach(graph_module: fx.GraphModule, given: Sequence[Role]) -> None:
    """Lets a graph of AOTAutograd know what was given to the graph of dynamo that it was made from."""
    for node in graph_module.graph.nodes:
        if node.op in ("placeholder", "output"):
            node.meta[GIVEN] = given


def role_of(node: fx.Node) -> Role:
    """What an input of a graph is; its name only where ``attach`` has told it."""
    return _looked_up(node.meta.get("desc"), node.meta.get(GIVEN, ()))


def results(graph: fx.Graph) -> list[tuple[Any, Role]]:
    """What a graph returns, in order: FX nodes and constants."""
    given = graph.output_node().meta.get(GIVEN, ())
    return [(value, _result(each, given)) for value, each in _described(graph)]


def _described(graph: fx.Graph) -> Iterator[tuple[Any, Any]]:
    """What a graph returns, in order, with torch's descriptor of it, None where there is none."""
    returned = returned_by(graph)
    return zip(returned, graph.output_node().meta.get("desc") or [None] * len(returned), strict=True)


def saved_values(graph: fx.Graph) -> set[fx.Node]:
    """What the graph returns for its backward graph alone."""
    saved: set[fx.Node] = set()
    returned: set[fx.Node] = set()
    for value, role in results(graph):
        if isinstance(value, fx.Node):
            (saved if role.kind == "saved" else returned).add(value)
    return saved - returned


def by_tangent(forward: fx.Graph, backward: fx.Graph) -> tuple[set[fx.Node], set[fx.Node]]:
    """What a forward graph returns to the caller: the values by which its backward graph is given a gradient, and the
    others."""
    given = {getattr(node.meta.get("desc"), "output", None) for node in backward.find_nodes(op="placeholder")}
    found: tuple[set[fx.Node], set[fx.Node]] = set(), set()
    for value, each in _described(forward):
        if isinstance(value, fx.Node) and _result(each, ()).kind == "output":
            found[each not in given].add(value)
    return found


def _looked_up(descriptor: Any, given: Sequence[Role]) -> Role:
    if isinstance(descriptor, aot.PlainAOTInput) and descriptor.idx < len(given):
        return given[descriptor.idx]
    if isinstance(descriptor, aot.ParamAOTInput):
        return Role("parameter", descriptor.target)
    return Role("buffer", descriptor.target) if isinstance(descriptor, aot.BufferAOTInput) else Role("input")


def _result(descriptor: Any, given: Sequence[Role]) -> Role:
    if isinstance(descriptor, aot.GradAOTOutput):
        return Role("gradient", _looked_up(descriptor.grad_of, given).name)
    if isinstance(descriptor, aot.InputMutationAOTOutput):
        return Role("new value", _looked_up(descriptor.mutated_input, given).name)
    return Role("saved" if type(descriptor).__name__.startswith("SavedForBackwards") else "output")
