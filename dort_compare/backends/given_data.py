"""``x.data = ...`` of inputs: the dynamo graph returns the data, which the inputs are given after each run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import fx
from torch.utils import _pytree

from dort_compare.runtime.boxed import Boxed, as_boxed

_SETTERS = {torch.Tensor.set_, getattr(torch.ops.aten, "shallow_copy_data_", None)}
"""What becomes of ``x.data = ...`` in a dynamo graph, up to torch 2.13 and from 2.14 on."""


class Setter(NamedTuple):
    """The node of a dynamo graph that sets the data of an input."""

    node: fx.Node
    given: fx.Node
    data: fx.Node

    @property
    def is_late(self) -> bool:
        """Whether something with gradients reads the input before, and may have saved it.

        In eager the backward pass then reads the new data where the input itself was saved, the old where a view was.
        """
        readers = [node for node in self.given.users if node < self.node]
        results = _pytree.tree_leaves([node.meta.get("example_value") for node in readers])
        return any(isinstance(each, torch.Tensor) and each.requires_grad for each in results)

    def is_unlike(self, given: torch.Tensor) -> bool:
        """Whether ``given`` learns, and its gradients do not fit the data, of other shape, dtype or device."""
        return given.requires_grad and _kind(given) != _kind(self.data.meta["example_value"])


def setters(graph: fx.Graph) -> list[Setter]:
    """Where a dynamo graph sets the data of its inputs."""
    nodes = [node for node in graph.nodes if node.target in _SETTERS]
    found = [Setter(node, *cast(tuple[fx.Node, fx.Node], node.args[:2])) for node in nodes]
    return [each for each in found if each.given.op == "placeholder"]


def set_plainly(graph_module: fx.GraphModule) -> None:
    """Has a dynamo graph set data as its author does: ``set_`` hides from autograd.grad what has read the input."""
    for setter in setters(graph_module.graph):
        _uncount(setter.node)
        setter.node.target = _set_data
    graph_module.recompile()


def take_data_out(graph_module: fx.GraphModule) -> list[int]:
    """Takes ``setters`` out of a dynamo graph, which returns the last data of each input after its own results.

    What reads such an input later reads its data, and has gradients go to the input. Returns the places of the inputs.
    """
    graph = graph_module.graph
    found = {each.node: each for each in setters(graph)}
    latest: dict[fx.Node, fx.Node] = {}
    for node in list(graph.nodes):
        if setter := found.get(node):
            latest[setter.given] = _read_instead(setter._replace(data=latest.get(setter.data, setter.data)))
        elif node.op != "output":
            for given, data in latest.items():
                node.replace_input_with(given, data)
    if found:
        _return_too(graph, latest.values())
        graph_module.recompile()
    inputs = list(graph.find_nodes(op="placeholder"))
    return [inputs.index(given) for given in latest]


def give_data(compiled: Callable[..., Any], places: Sequence[int]) -> Callable[..., Any]:
    """``compiled``, of whose results the last become the data of its inputs at ``places``."""

    def call(*arguments: Any) -> Any:
        results = compiled(*arguments)
        own = len(results) - len(places)
        for place, data in zip(places, results[own:], strict=True):
            arguments[place].data = data
        return results[:own]

    return call


def saved_as_they_are(compile_forward: Callable[..., Boxed]) -> Callable[..., Boxed]:
    """``compile_forward``, whose graphs save aliases of inputs for the backward graph, which keep their data."""

    def compile_graph(graph_module: fx.GraphModule, example_inputs: Sequence[Any]) -> Boxed:
        forward = compile_forward(graph_module, example_inputs)

        @as_boxed
        def call(arguments: list[Any]) -> Any:
            taken = {id(each): each for each in arguments if isinstance(each, torch.Tensor)}
            return [each.detach() if id(each) in taken else each for each in forward(arguments)]

        return call

    return compile_graph


def _kind(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.dtype, tensor.device


def _read_instead(setter: Setter) -> fx.Node:
    """Puts a node that gives the data in the place of one that sets them and gives the input."""
    graph = setter.node.graph
    with graph.inserting_before(setter.node):
        data = graph.call_function(_with_data, (setter.given, setter.data))
    data.meta = setter.node.meta
    _uncount(setter.node)
    setter.node.replace_all_uses_with(setter.given)
    graph.erase_node(setter.node)
    return data


def _uncount(node: fx.Node) -> None:
    """Takes out what undoes the count of a write: ``set_`` is one, ``x.data = ...`` is none."""
    for reader in list(node.users):
        if getattr(reader.target, "__name__", "") == "_lower_version_count_by_1":
            node.graph.erase_node(reader)


def _return_too(graph: fx.Graph, data: Iterable[fx.Node]) -> None:
    output = graph.output_node()
    with graph.inserting_before(output):
        detached = [graph.call_method("detach", (each,)) for each in data]
    output.args = ((*cast(Sequence[Any], output.args[0]), *detached),)


def _set_data(given: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    given.data = data
    return given


def _with_data(given: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """The input with its data; it may learn after gradients were off for the setting."""
    with torch.enable_grad():
        return cast(torch.Tensor, _WithData.apply(given, data.detach()))


class _WithData(torch.autograd.Function):
    """The data, in the same memory, whose gradients are those of the first argument."""

    @staticmethod
    def forward(_: Any, __: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
        return data.data

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None
