"""What torch knew of an FX node when it traced the graph, as strict JSON, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from dort_compare.dtypes import dtype_name
from dort_compare.dump.arguments import Json, Place, decoded, dtype_named, encoded, placed
from dort_compare.errors import UnsupportedGraphError
from dort_compare.node_meta import OPERATION, STACK_TRACE, STACKS, UNBACKED
from dort_compare.provenance import source_code, source_line
from dort_compare.scalars import is_number, unbacked_symbols

_NUMBERS: dict[str, tuple[type, type]] = {
    "bool": (bool, torch.SymBool),
    "float": (float, torch.SymFloat),
    "int": (int, torch.SymInt),
}


def encoded_meta(node: fx.Node) -> dict[str, Json]:
    """Value, module stacks, source line with its text, and sequence number of ``node``, as far as it has them.

    Symbolic sizes are what they were when torch traced the graph, null where the data decide on them.
    Raises UnsupportedGraphError for a value that a dump cannot hold.
    """
    found: dict[str, Json] = {}
    if "val" in node.meta:
        found["val"] = _encoded_value(node.meta["val"])
    if symbols := unbacked_symbols(node):
        found["unbacked"] = sorted(symbols)
    for key in STACKS:
        if stack := node.meta.get(key):
            found[key] = [[str(name), str(path), _class_name(owner)] for name, (path, owner) in stack.items()]
    if source := source_line(node):
        found["source"] = source
        found["code"] = source_code(node)
    if isinstance(node.meta.get(OPERATION), int):
        found[OPERATION] = node.meta[OPERATION]
    return found


def decoded_meta(data: dict[str, Json], place: Place) -> dict[str, Any]:
    """The ``meta`` of a node; tensors have no memory (call this under a FakeTensorMode).

    Raises KeyError, TypeError, ValueError or RuntimeError for what ``encoded_meta`` would not have written.
    """
    meta: dict[str, Any] = {UNBACKED: frozenset(_texts(data.get("unbacked", [])))}
    if "val" in data:
        meta["val"] = _decoded_value(data["val"], place)
    for key in STACKS:
        if key in data:
            entries = (_texts(entry) for entry in data[key])
            meta[key] = {name: (path, owner) for name, path, owner in entries}
    if "source" in data:
        file, _, line = _texts([data["source"]])[0].rpartition(":")
        code = _texts([data.get("code", "")])[0]
        meta[STACK_TRACE] = f'  File "{file}", line {line}\n    {code}'
    if isinstance(data.get(OPERATION), int):
        meta[OPERATION] = data[OPERATION]
    return meta


def _encoded_value(value: Any) -> Json:
    if value is None:
        return None
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided:
            raise UnsupportedGraphError(f"a value is a {value.layout} tensor, which a dump cannot hold")
        return {
            "dtype": dtype_name(value.dtype),
            "shape": [_hint(size) for size in value.shape],
            "stride": [_hint(step) for step in value.stride()],
            "device": str(value.device),
        }
    if is_number(value):
        kind = next(kind for kind in ("bool", "float", "int") if isinstance(value, _NUMBERS[kind]))
        return {"number": kind, "value": encoded(_hint(value))}
    if isinstance(value, (tuple, list)):
        return [_encoded_value(each) for each in value]
    raise UnsupportedGraphError(f"a value is a {type(value).__name__}, which a dump cannot hold")


def _decoded_value(data: Json, place: Place) -> Any:
    if data is None:
        return None
    if isinstance(data, list):
        return tuple(_decoded_value(each, place) for each in data)
    if "number" in data:
        plain, _ = _NUMBERS[data["number"]]
        return plain(decoded(data["value"], {}, place) or 0)
    shape, stride = (_sizes(data[key]) for key in ("shape", "stride"))
    return torch.empty_strided(shape, stride, dtype=dtype_named(data["dtype"]), device=placed(data["device"], place))


def _sizes(data: Json) -> list[int]:
    """Sizes; 0 where only the data can tell. Raises ValueError for a negative or other number."""
    if not isinstance(data, list) or not all(n is None or (type(n) is int and 0 <= n < 2**63) for n in data):
        raise ValueError(f"{str(data)[:80]} are no sizes")
    return [n or 0 for n in data]


def _hint(number: Any) -> Any:
    return number.node.hint if isinstance(number, torch.types.py_sym_types) else number


def _class_name(owner: object) -> str:
    return f"{owner.__module__}.{owner.__qualname__}" if isinstance(owner, type) else str(owner)


def _texts(data: Json) -> Sequence[str]:
    if not isinstance(data, list) or not all(isinstance(each, str) for each in data):
        raise ValueError(f"{str(data)[:80]} is no list of names")
    return data
