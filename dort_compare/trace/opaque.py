"""Which values of an ONNX model are no tensors for torch, told by their types or by the operators that make them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Set
from typing import Literal, NamedTuple

import onnx

from dort_compare.captures import bodies
from dort_compare.trace.schemas import plain_domain, schema_of

_TYPES = onnx.TensorProto
_NOT_HELD = frozenset(
    number
    for name, number in _TYPES.DataType.items()
    if name == "STRING" or name.startswith(("FLOAT8", "FLOAT4", "INT4", "UINT4", "INT2", "UINT2"))
)
"""Types of elements that ONNX Runtime does not hand to torch: strings, and numbers of few bits."""
_TELLING = frozenset([
    "classlabels_strings", "output_dtype", "to", "value", "value_string", "value_strings", "values_strings",
    "values_tensor"
])  # fmt: skip
"""Attributes that say of which type of elements a result is."""
_MAPPING = frozenset(["cats_strings", "classes_strings"])
"""Attributes of operators that make numbers of strings, and strings of anything else."""

Versions = Mapping[str, int]
"""By domain, the version of its operators."""


class _Result(NamedTuple):
    """What an operator says of a result: what values it may be, and how many operands have its type, and which."""

    values: Literal["held", "opaque", "either"]
    operands: int
    alike: frozenset[int]


def opaque_values(model: onnx.ModelProto) -> set[str]:
    """The values that are no tensors for torch: sequences, optionals, maps, strings and numbers of few bits.

    A model need not say of which type its values are. What is made of operators that ONNX does not know is a tensor.
    """
    return _opaque_in(model.graph, set(), {plain_domain(opset.domain): opset.version for opset in model.opset_import})


def _opaque_in(graph: onnx.GraphProto, outside: Set[str], versions: Versions) -> set[str]:
    """Those of a graph, whose nodes are in order, and those from ``outside``, which it may read."""
    typed = (*graph.input, *graph.value_info, *graph.output)
    found = {*outside, *(value.name for value in typed if _is_declared(value))}
    found.update(tensor.name for tensor in graph.initializer if tensor.data_type in _NOT_HELD)
    for proto in graph.node:
        found.update(_by_operator(proto, found, versions))
        found.update(_by_bodies(proto, found, versions))
    return found


def _is_declared(value: onnx.ValueInfoProto) -> bool:
    return value.type.WhichOneof("value") is not None and not _is_held(value.type)


def _by_operator(proto: onnx.NodeProto, opaque: Set[str], versions: Versions) -> list[str]:
    domain = plain_domain(proto.domain)
    results = _results(proto.op_type, versions.get(domain, 1), domain)
    said = ((name, results[min(slot, len(results) - 1)]) for slot, name in enumerate(proto.output) if results)
    return [name for name, result in said if name and _is_opaque(result, proto, opaque)]


def _by_bodies(proto: onnx.NodeProto, opaque: Set[str], versions: Versions) -> Iterator[str]:
    """The results that a body makes; what it is handed in has the type of the operand in that place."""
    for body in bodies(proto):
        given = {inner.name for inner, name in zip(body.input, proto.input, strict=False) if name in opaque}
        inside = _opaque_in(body, opaque | given, versions)
        made = body.output[-len(proto.output) :]
        yield from (name for name, value in zip(proto.output, made, strict=False) if value.name in inside)


def _is_opaque(result: _Result, proto: onnx.NodeProto, opaque: Set[str]) -> bool:
    if result.values != "either":
        return result.values == "opaque"
    alike = [name for i, name in enumerate(proto.input) if name and min(i, result.operands - 1) in result.alike]
    if alike:
        return not opaque.isdisjoint(alike)
    if any(attribute.name in _MAPPING for attribute in proto.attribute):
        return proto.input[0] not in opaque
    return any(attribute.name in _TELLING and _holds_opaque(attribute) for attribute in proto.attribute)


def _holds_opaque(attribute: onnx.AttributeProto) -> bool:
    """Whether it holds strings, a tensor that is not held, or the number of such a type."""
    return bool(attribute.s or attribute.strings) or not _NOT_HELD.isdisjoint([attribute.i, attribute.t.data_type])


@functools.lru_cache(maxsize=1024)
def _results(op_type: str, version: int, domain: str) -> tuple[_Result, ...]:
    """Of an operator in a domain that ONNX does not know, those of its own of the same name, if there is one."""
    schema = schema_of(op_type, version, domain)
    if schema is None:
        return _results(op_type, onnx.defs.onnx_opset_version(), "") if domain else ()
    types = [operand.type_str for operand in schema.inputs]
    return tuple(_result(formal, types) for formal in schema.outputs)


def _result(formal: onnx.defs.OpSchema.FormalParameter, types: list[str]) -> _Result:
    """Where the results of an operator need not be of one type, its bodies say of which they are."""
    held = {_is_held_name(name) for name in formal.types}
    alike = frozenset(i for i, other in enumerate(types) if other == formal.type_str)
    if len(held) == 1:
        return _Result("held" if held == {True} else "opaque", len(types), alike)
    return _Result("either" if formal.is_homogeneous else "held", len(types), alike)


def _is_held(kind: onnx.TypeProto) -> bool:
    """Whether values of a type leave an engine as torch tensors: tensors of numbers, those of unknown dtype too."""
    return kind.HasField("tensor_type") and kind.tensor_type.elem_type not in _NOT_HELD


def _is_held_name(kind: str) -> bool:
    """Whether they do, of a type as ONNX's operators write it: ``tensor(float)``."""
    return kind.startswith("tensor(") and _TYPES.DataType.Value(kind[7:-1].upper()) not in _NOT_HELD
