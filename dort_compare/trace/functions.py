"""A model's local functions, put where they are called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

import onnx
from onnx import inliner

from dort_compare.captures import with_bodies
from dort_compare.errors import UsageError
from dort_compare.protos import copy_of

MOST_NODES = 10**6
"""Of a model whose functions are inlined. Of functions that each call the next one twice, forty make 10^12 nodes."""
_Key = tuple[str, str, str]


def inlined(model: onnx.ModelProto, title: str) -> onnx.ModelProto:
    """The model without local functions but for those that cannot be inlined; ``title`` names it in errors.

    Raises UsageError where they call themselves, or make too many nodes.
    """
    if not model.functions:
        return model
    refuse_too_many(model, title)
    try:
        if not any(each.attribute_proto for each in model.functions):
            return inliner.inline_local_functions(model)
        return _inlined_with_defaults(model)
    except CycleError as problem:
        cycle = " -> ".join(f"{domain}::{name}" for domain, name in problem.args[1])
        raise UsageError(f"{title} has local functions that call themselves: {cycle}") from None
    except Exception as problem:  # noqa: BLE001  (pybind translates C++ exceptions into several)
        raise UsageError(f"{title} has local functions that cannot be inlined: {problem}") from None


def _inlined_with_defaults(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same of functions with defaults, which onnx's inliner does not know: what a call leaves out of a function's
    attributes it leaves out of its nodes.

    Callers go before what they call: an attribute that one hands on is known to be left out once it is inlined.
    """
    model = copy_of(model)
    for names in _callers_first(model):
        _add_defaults(model)
        model = inliner.inline_selected_functions(model, names)
    return model


def _callers_first(model: onnx.ModelProto) -> Iterator[list[tuple[str, str]]]:
    """The domains and names of functions, together those that only earlier ones call."""
    callers: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for (domain, name, _), called in _calls(_nodes_of_functions(model)).items():
        callers.setdefault((domain, name), set())
        for other in {key[:2] for key in called} - {(domain, name)}:  # of its overloads all go together
            callers.setdefault(other, set()).add((domain, name))
    order = TopologicalSorter(callers)
    order.prepare()
    while names := order.get_ready():
        yield list(names)
        order.done(*names)


def _add_defaults(model: onnx.ModelProto) -> None:
    """Writes the defaults of functions' attributes into the calls that leave them out."""
    defaults = {(each.domain, each.name, each.overload): each.attribute_proto for each in model.functions}
    for node in with_bodies(model.graph.node):
        given = {attribute.name for attribute in node.attribute}
        node.attribute.extend(each for each in defaults.get(_key(node), ()) if each.name not in given)


def refuse_too_many(model: onnx.ModelProto, title: str) -> None:
    """Raises UsageError where a model's functions make more than ``MOST_NODES`` nodes: whoever inlines them, as ONNX
    Runtime does, would run out of memory."""
    if (nodes := _nodes_inlined(model)) > MOST_NODES:
        raise UsageError(f"{title} has local functions that make {nodes:.2g} nodes of it, more than {MOST_NODES:.0e}")


def _nodes_inlined(model: onnx.ModelProto) -> int:
    """How many nodes the model has with its functions inlined; 0 where one calls itself."""
    nodes = _nodes_of_functions(model)
    calls = _calls(nodes)
    sizes: dict[_Key, int] = {}
    try:
        for key in TopologicalSorter(calls).static_order():
            own = len(nodes[key]) - calls[key].total()
            sizes[key] = own + sum(number * sizes[called] for called, number in calls[key].items())
    except CycleError:
        return 0
    return sum(sizes.get(_key(node), 1) for node in with_bodies(model.graph.node))


def _nodes_of_functions(model: onnx.ModelProto) -> dict[_Key, list[onnx.NodeProto]]:
    return {(each.domain, each.name, each.overload): list(with_bodies(each.node)) for each in model.functions}


def _calls(nodes: Mapping[_Key, Sequence[onnx.NodeProto]]) -> dict[_Key, Counter[_Key]]:
    """By function, how often it calls each of them."""
    return {key: Counter(each for node in of if (each := _key(node)) in nodes) for key, of in nodes.items()}


def _key(node: onnx.NodeProto) -> _Key:
    return node.domain, node.op_type, node.overload
