"""One table from ATen overload to lowering, one lookup."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import torch

Target = Callable[..., Any]
Lowering = Callable[..., Any]
_F = TypeVar("_F", bound=Lowering)

_TABLE: dict[Target, Lowering] = {}
_BY_NAME: dict[tuple[str, str, str], Lowering] = {}
_AWAITED: set[tuple[str, str, str]] = set()
"""Of those by name, what torch has not had so far."""


def lowering(*targets: Target) -> Callable[[_F], _F]:
    """Registers a function as the lowering of ``targets``: ATen overloads, or builtins that work on symbolic integers.

    The function is called as ``function(op, *args, **kwargs)`` with the arguments of the FX node, where every FX node
    among them is replaced by its ONNX value and ``op`` is the Builder that writes ONNX nodes. It returns
    the ONNX value of the result, or a tuple of them (None for a result that it does not compute).

    Raises TypeError for an overload packet and ValueError where a target has a lowering already.
    """

    def register(function: _F) -> _F:
        for target in targets:
            if isinstance(target, torch._ops.OpOverloadPacket):
                raise TypeError(f"{target} is a packet of overloads; name one, such as {target}.default")
            if target in _TABLE:
                raise ValueError(f"{target} has a lowering already: {_TABLE[target].__name__}")
            _TABLE[target] = function
        return function

    return register


def lowering_by_name(*names: str) -> Callable[[_F], _F]:
    """Registers a function as ``lowering`` does, for the operators "library::name" or "library::name.overload", where
    there are such.

    Their library may be imported later or never, and a release of torch may lack them. Raises ValueError where one has
    a lowering by name already; where it has one as an overload, ``registered`` does.
    """

    def register(function: _F) -> _F:
        for name in names:
            library, _, operator = name.partition("::")
            packet, _, overload = operator.partition(".")
            key = library, packet, overload or "default"
            if key in _BY_NAME:
                raise ValueError(f"{name} has a lowering already: {_BY_NAME[key].__name__}")
            _BY_NAME[key] = function
            _AWAITED.add(key)
        return function

    return register


def registered() -> Mapping[Target, Lowering]:
    """Every target with a lowering of ours."""
    import dort_compare.lowering.ops  # noqa: F401, PLC0415  (the families register themselves on import)

    for key in list(_AWAITED):
        library, name, overload = key
        packet = getattr(getattr(torch.ops, library), name, None)
        if packet is not None:
            target = getattr(packet, overload)
            if _TABLE.get(target) is not _BY_NAME[key]:
                lowering(target)(_BY_NAME[key])
            _AWAITED.discard(key)
    return MappingProxyType(_TABLE)
