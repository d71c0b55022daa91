"""What FX nodes keep of where they come from in their ``meta``: torch's keys that several rooms read, all of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import fx

MODULES, FORWARD_MODULES = "nn_module_stack", "fwd_nn_module_stack"
STACKS = (MODULES, FORWARD_MODULES)
"""Torch's: the calls of modules around a node, or around the forward node that a backward one differentiates.

By key ("<id of the module>", from its second call on "...@<n>") dynamo's name of the module, and its class.
"""
OPERATION = "seq_nr"
"""Torch's: the number of the operation that a node is of, which its backward nodes share."""
PASS = "partitioner_tag"
"""Torch's: in which pass a node of a joint graph is made."""
STACK_TRACE = "stack_trace"
IS_SUM = "is_gradient_acc"
"""Torch's, of nodes that sum gradients up: they are of no operation of the forward pass, nor of its module."""

MERGED = "merged_calls"
"""That of every call that was merged into a node."""
PLACE = "place_in_joint_graph"
"""The number of nodes that came before a node."""
UNBACKED = "dort_compare.unbacked"
"""In a node that was read from a file: the names of its symbols, for its sizes are numbers."""
GIVEN = "dort_compare.given"
"""In the inputs and the output of a graph: what was given to the graph of dynamo that it was made of."""

_MOVED, _IN_LOOP = "moved", "within"


def stack_of(node: fx.Node) -> Mapping[str, tuple[str, Any]]:
    """The calls of modules that a node, or its forward node, stems from, as ``STACKS`` tells."""
    return node.meta.get(MODULES) or node.meta.get(FORWARD_MODULES) or {}


def metas_of(node: fx.Node) -> list[dict[str, Any]]:
    """What torch knows of a node and of every call that was merged into it."""
    return [node.meta, *node.meta.get(MERGED, ())]


def moved_key(key: str, path: str, call: fx.Node) -> str:
    """The key of a module of which torch knows one like it, at ``path`` by the ``key``: by the call of a region that it
    is met in, of several such calls by the first."""
    origin = key if key.startswith(_MOVED) else f"{path}:{key}"
    return f"{_MOVED}:{call.name}:{origin}"


def key_in_loop(key: str) -> str:
    """The key of a module that a loop calls, which is no call that eager makes."""
    return f"{_IN_LOOP}:{key}"


def module_of_key(key: str) -> tuple[int, str | None]:
    """The ``id`` of the module that a key is of and, where one like it is meant, the path of that one, else None.

    0, which no module has, for a name: a program that torch.export has made brings those of its own modules; and for a
    module that a loop calls, which eager traces.
    """
    if key.startswith(_IN_LOOP):
        return 0, None
    *moved, own = key.rsplit(":", 2)
    identity = own.partition("@")[0]
    return int(identity) if identity.isdecimal() else 0, moved[-1] if key.startswith(_MOVED) else None
