"""A graph in words that mean the same in every process, and differ where what is compiled may.

They tell calls with all their arguments, the dtype, shape, strides and device that torch traced for every value,
constants by content, nested graphs, names and where each node comes from, which the model holds too; and what torch
knows of symbolic sizes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.types import py_sym_types

from dort_compare import provenance
from dort_compare.fx_graph import attribute_of
from dort_compare.provenance import Phase, Provenance

Words = Any
"""Tuples, to any depth, of plain values: ``repr`` tells any two of them apart."""
LARGEST_CONSTANTS = 2**26
"""Bytes of constants in a graph that is kept; the weights of a model are inputs of its graphs."""

_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})
_NAMED = (torch.dtype, torch.device, torch.layout, torch.memory_format)
_LIBRARIES = ("operator", "_operator", "builtins", "math", "torch")
_OPERATORS = (torch._ops.OpOverload, torch._ops.HigherOrderOperator)
_TENSORS = (torch.Tensor, torch.nn.Parameter, FakeTensor)


class UnkeyedError(ValueError):
    """A graph that has no key, and why."""


def words_of(graph_module: fx.GraphModule, phase: Phase) -> Words:
    """The nodes of a graph, in order. Raises UnkeyedError."""
    return tuple(_node(node, phase) for node in graph_module.graph.nodes)


def _node(node: fx.Node, phase: Phase) -> Words:
    try:
        if node.op == "get_attr":
            held, traced = _held(node, phase), None
        else:
            held, traced = _target(node.target), _words(node.meta.get("val"))
        origin = tuple(Provenance.of(node, phase).metadata().values())
        return node.op, node.name, held, _words(node.args), _words(node.kwargs), traced, origin
    except UnkeyedError as problem:
        raise UnkeyedError(f"FX node {node.name} ({provenance.target_name(node)}): {problem}") from None


def _target(target: Any) -> Words:
    if isinstance(target, str):
        return "name", target
    if isinstance(target, _OPERATORS):
        return type(target).__name__, str(target)
    module, name = getattr(target, "__module__", None), getattr(target, "__qualname__", "<locals>")
    if str(module).split(".")[0] not in _LIBRARIES or "<" in name:
        raise UnkeyedError("a function of unknown source")
    return "function", module, name


def _held(node: fx.Node, phase: Phase) -> Words:
    value = attribute_of(node)
    if isinstance(value, fx.GraphModule):
        return "graph", words_of(value, phase)
    if type(value) not in _TENSORS or isinstance(value, FakeTensor):
        raise UnkeyedError(f"a constant of type {type(value).__name__}")
    if value.layout is not torch.strided:
        raise UnkeyedError(f"a {value.layout} constant")
    if value.nbytes > LARGEST_CONSTANTS:
        raise UnkeyedError(f"a constant of {value.nbytes >> 20} MiB")
    return _tensor(value), _content(value)


def _content(tensor: torch.Tensor) -> str:
    with unset_fake_temporarily(), torch.no_grad():
        try:
            plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
            return hashlib.sha256(plain.view(torch.uint8).numpy().data).hexdigest()
        except (RuntimeError, TypeError, NotImplementedError):
            raise UnkeyedError(f"a constant of {tensor.dtype}") from None


def _words(value: Any) -> Words:
    if type(value) in _PLAIN:
        return value
    if isinstance(value, (tuple, list)):
        return ("list", *map(_words, value))
    if isinstance(value, Mapping):
        return ("mapping", *((_words(name), _words(each)) for name, each in value.items()))
    if isinstance(value, slice):
        return "slice", _words(value.start), _words(value.stop), _words(value.step)
    return _tensor(value) if isinstance(value, torch.Tensor) else _word(value)


def _word(value: Any) -> Words:
    if isinstance(value, fx.Node):
        return "node", value.name
    if isinstance(value, _NAMED):
        return "torch", str(value)
    if isinstance(value, py_sym_types):
        return type(value).__name__, str(value.node.expr)
    if isinstance(value, _OPERATORS):
        return _target(value)
    raise UnkeyedError(f"an argument of type {type(value).__name__}")


def _tensor(tensor: torch.Tensor) -> Words:
    if type(tensor) not in _TENSORS:
        raise UnkeyedError(f"a tensor of type {type(tensor).__name__}")
    strides = (tensor.stride(), tensor.storage_offset()) if tensor.layout is torch.strided else ()
    return "tensor", _words((tensor.dtype, tensor.device, tensor.layout, tuple(tensor.shape), strides))


def sizes_of(graph_module: fx.GraphModule) -> Words:
    """What torch knows of the symbolic sizes in a graph: their ranges, guards and equalities."""
    known = {id(each.node.shape_env): each.node.shape_env for each in _symbolic(graph_module)}
    return tuple(
        (
            tuple(sorted((str(symbol), str(span)) for symbol, span in env.var_to_range.items())),
            tuple(sorted((str(symbol), str(other)) for symbol, other in env.replacements.items())),
            tuple(sorted({str(guard.expr) for guard in env.guards})),
            tuple(sorted({str(late.expr) for each in env.deferred_runtime_asserts.values() for late in each})),
        )
        for env in known.values()
        if env is not None
    )


def _symbolic(graph_module: fx.GraphModule) -> Iterator[Any]:
    """The symbolic numbers in what torch traced for the nodes of a graph."""
    for node in graph_module.graph.nodes:
        traced = node.meta.get("val")
        for each in traced if isinstance(traced, (tuple, list)) else (traced,):
            sizes = (*each.shape, *each.stride()) if type(each) is FakeTensor and each.layout is torch.strided else ()
            yield from (size for size in (each, *sizes) if isinstance(size, py_sym_types))
