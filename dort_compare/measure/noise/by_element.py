"""Ops that work element by element."""

from __future__ import annotations

import torch
from torch import fx

from dort_compare.fx_graph import call_of, is_pointwise
from dort_compare.measure.noise.exact import is_exact
from dort_compare.measure.noise.sums import SUMS
from dort_compare.trace import Replay

aten, prims = torch.ops.aten, torch.ops.prims

_UNTAGGED = {
    *SUMS,
    *(aten.floor_divide.default, aten.floor_divide.Scalar),
    *(prims.floor.default, prims.ceil.default, prims.round.default, prims.fmod.default, prims.remainder.default),
    *(aten.hardtanh_backward.default, aten.hardsigmoid_backward.default, aten.hardswish_backward.default),
    *(aten.hardshrink_backward.default, aten.softshrink_backward.default, aten.leaky_relu_backward.default),
    aten.fake_quantize_per_tensor_affine_cachemask.default,
    aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default,
    aten.fake_quantize_per_channel_affine_cachemask.default,
}
"""Ops that work element by element, of which torch does not say so: ``rsub``, and those that jump at a threshold, which
all kernels take the same numbers to."""


def works_by_element(replay: Replay, node: fx.Node) -> bool:
    """Whether one op computes each element of its result of those in the same place; not a chain of ops."""
    target = call_of(node).target
    return not replay.is_chain and (is_pointwise(target) or target in _UNTAGGED or is_exact(node))
