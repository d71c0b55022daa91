"""Ops on lists of tensors, of which optimizers and the clipping of gradients are made, as ops on each tensor."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._C import DispatchKey


@functools.cache
def decompositions() -> dict[torch._ops.OperatorBase, Callable[..., Any]]:
    """For each op that writes nothing torch's kernel for devices that have none of their own, a loop over the list."""
    return {op: functools.partial(op._op_dk, DispatchKey.CompositeExplicitAutograd) for op in _functional_ops()}


def _functional_ops() -> Iterator[torch._ops.OpOverload]:
    for name in torch._C._dispatch_get_all_op_names():
        packet, _, overload = name.removeprefix("aten::").partition(".")
        if packet.startswith("_foreach_"):
            op = getattr(getattr(torch.ops.aten, packet), overload or "default")
            if not op._schema.is_mutable:
                yield op
