"""What a graph that comes from somebody else may call."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

import torch

from dort_compare.lowering.registry import Target, registered

_ATEN = re.compile(r"(aten|prims)\.([a-z_][a-z0-9_]*)\.([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)


def find_target(name: str) -> Target | None:
    """The overload or builtin of that name ("aten.add.Tensor", "operator.mul"), or None where it may not be called.

    What may be: every target that has a lowering, and what torch counts among its core operators and writes to none of
    its arguments. All of them compute numbers from numbers; none opens a file or runs code, as ``aten.from_file`` and
    custom operators could.
    """
    return _by_name(len(registered())).get(name) or _core(name)


@functools.lru_cache(maxsize=1)
def _by_name(_lowerings: int) -> Mapping[str, Target]:
    """Of so many lowerings: users may add some, and take none away."""
    return {_name(target): target for target in registered()}


def _name(target: Target) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    return f"{target.__module__.removeprefix('_')}.{target.__name__}"


def _core(name: str) -> Target | None:
    found = _ATEN.fullmatch(name)
    if found is None:
        return None
    namespace, operator, overload = found.groups()
    packet = getattr(getattr(torch.ops, namespace), operator, None)
    if not isinstance(packet, torch._ops.OpOverloadPacket) or overload not in packet.overloads():
        return None
    target = getattr(packet, overload)
    return target if torch.Tag.core in target.tags and not target._schema.is_mutable else None
