"""Views of known sizes that a graph can make of one value, wherever that lies."""

from __future__ import annotations

import operator

import torch
from torch import fx

from dort_compare.views import history

aten = torch.ops.aten
_VIEWS = {aten.view.default, aten._unsafe_view.default, aten.expand.default, aten.permute.default,
          aten.transpose.int, aten.t.default, aten.unsqueeze.default, aten.squeeze.dim, aten.squeeze.dims,
          aten.select.int, aten.slice.Tensor, aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int,
          aten.detach.default, aten.alias.default, operator.getitem}  # fmt: skip


def base_of(node: fx.Node) -> fx.Node | None:
    """What a value is a view of, through views that a graph can make; the value itself where it is none.

    None where it is a view of another kind, or of several values, or where sizes are not known.
    """
    if not is_known(node):
        return None
    steps, sources = history(node)
    is_plain = len(sources) == 1 and is_known(sources[0]) and all(step.target in _VIEWS for step in steps)
    return sources[0] if is_plain else None


def is_known(node: fx.Node) -> bool:
    """Whether a node is a real tensor in memory of known sizes and strides, which autograd may watch."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.is_complex():
        return False
    is_static = all(isinstance(size, int) for size in (*value.shape, *value.stride()))
    return is_static and not node.meta.get("saved_tensor_with_no_vc_check")
