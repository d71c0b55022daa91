"""Arguments of FX nodes as strict JSON, and back: data that can name a node, but cannot do anything."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from dort_compare.errors import UnsupportedGraphError

Json = Any
Place = Callable[[torch.device], torch.device]
"""Where what a dump has on one device is put when it is read."""

_DEEPEST = 16
_NAMED = {"layout": torch.layout, "memory_format": torch.memory_format, "dtype": torch.dtype}
_TORCH = {kind: {name: v for name, v in vars(torch).items() if isinstance(v, t)} for kind, t in _NAMED.items()}


def encoded(value: Any) -> Json:
    """An argument of an FX node as JSON.

    Lists, numbers, strings, booleans and None stand for themselves, anything else is an object of one entry that names
    the kind: {"node": name}, {"dtype": "float32"}, {"float": "inf"}, ... A symbolic number is what it was when traced.

    Raises UnsupportedGraphError for what has no such form.
    """
    if isinstance(value, torch.types.py_sym_types):
        value = value.node.hint
        if value is None:
            raise UnsupportedGraphError(
                "an argument is a number that only the data decide on, which a dump cannot hold"
            )
    if value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, list):
        return [encoded(each) for each in value]
    return _object(value)


def _object(value: Any) -> dict[str, Json]:
    for kind, (python_type, content) in _OBJECTS.items():
        if isinstance(value, python_type):
            return {kind: content(value)}
    raise UnsupportedGraphError(f"an argument is a {type(value).__name__}, which a dump cannot hold")


def _torch_name(value: object) -> str:
    return str(value).removeprefix("torch.")


_OBJECTS: dict[str, tuple[type, Callable[[Any], Json]]] = {
    "float": (float, str),
    "node": (fx.Node, lambda node: node.name),
    "tuple": (tuple, lambda value: encoded(list(value))),
    "slice": (slice, lambda value: encoded([value.start, value.stop, value.step])),
    "device": (torch.device, str),
    **{kind: (torch_type, _torch_name) for kind, torch_type in _NAMED.items()},
}


def decoded(data: Json, nodes: Mapping[str, fx.Node], place: Place, depth: int = 0) -> Any:
    """What ``encoded`` made JSON of; nodes are found by name. Raises ValueError for anything else."""
    if depth > _DEEPEST:
        raise ValueError("an argument is nested too deep")
    if isinstance(data, int) and abs(data) >= 2**64:
        raise ValueError("an integer has more than 64 bits")
    if data is None or isinstance(data, (bool, int, float, str)):
        return data
    if isinstance(data, list):
        return [decoded(each, nodes, place, depth + 1) for each in data]
    if not isinstance(data, dict) or len(data) != 1:
        raise ValueError(f"{str(data)[:80]!r} is no argument of a node")
    ((kind, content),) = data.items()
    if kind in ("tuple", "slice") and isinstance(content, list):
        parts = tuple(decoded(each, nodes, place, depth + 1) for each in content)
        return slice(*parts) if kind == "slice" else parts
    return _leaf(kind, content, nodes, place)


def _leaf(kind: str, content: Json, nodes: Mapping[str, fx.Node], place: Place) -> Any:
    if not isinstance(content, str):
        raise ValueError(f"{str(content)[:80]!r} is no {kind[:80]}")
    if kind == "node":
        if content not in nodes:
            raise ValueError(f"{content!r} is read, but no node before computes it")
        return nodes[content]
    if kind == "float" and content in ("inf", "-inf", "nan"):
        return float(content)
    if kind == "device":
        return placed(content, place)
    if content not in _TORCH.get(kind, {}):
        raise ValueError(f"{content!r} is no {kind[:80]}")
    return _TORCH[kind][content]


def dtype_named(name: object) -> torch.dtype:
    """torch.float32 for "float32". Raises ValueError for anything that is no dtype."""
    return decoded({"dtype": name}, {}, lambda device: device)


def placed(device: object, place: Place) -> torch.device:
    """The device that stands for a recorded one. Raises ValueError for anything but a CPU or a GPU."""
    if not isinstance(device, str) or device.partition(":")[0] not in ("cpu", "cuda"):
        raise ValueError(f"{device!r} is no device that graphs are run on")
    return place(torch.device(device))
