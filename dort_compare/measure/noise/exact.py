"""Ops whose every element is right by itself: rounded once, taken as it is, or what one elementary function makes."""

from __future__ import annotations

import operator

import torch
from torch import fx

from dort_compare.measure.distance.blocks import blocks
from dort_compare.measure.noise.floor import rounding
from dort_compare.measure.noise.sums import SUMS, factor

aten, prims = torch.ops.aten, torch.ops.prims

_OTHERS = {
    *(aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar, aten.neg.default, aten.abs.default),
    *(aten.where.self, aten.masked_fill.Scalar, aten.masked_fill.Tensor, aten.masked_scatter.default),
    *(aten.maximum.default, aten.minimum.default, aten.relu.default, aten.tril.default, aten.triu.default),
    *(aten.clamp.default, aten.clamp.Tensor, aten.clamp_min.default, aten.clamp_max.default),
    *(aten.clone.default, aten.copy.default, aten.cat.default, aten.flip.default, aten.roll.default),
    *(aten.gather.default, aten.index.Tensor, aten.index_select.default, aten.embedding.default),
    *(aten.constant_pad_nd.default, aten.slice_scatter.default, aten.select_scatter.default, aten.repeat.default),
    *(aten.scatter.src, aten.scatter.value, aten.amax.default, aten.amin.default, aten.leaky_relu.default),
    *(aten.round.default, aten.floor.default, aten.ceil.default, aten.trunc.default, aten.sign.default),
    *(aten._to_copy.default, prims.convert_element_type.default, aten.take.default, aten.masked_select.default),
    *(aten.unfold_copy.default, aten.slice_backward.default, aten.select_backward.default, aten.im2col.default),
    *(aten.diag_embed.default, aten.diagonal_scatter.default, aten.diagonal_backward.default, aten.index_copy.default),
    *(getattr(aten, f"{kind}_pad{n}d").default for kind in ("reflection", "replication") for n in (1, 2, 3)),
    *(getattr(aten, f"upsample_nearest{n}d").default for n in (1, 2, 3)),
}
ELEMENTARY = {aten.exp.default, aten.reciprocal.default, aten.rsqrt.default, aten.sqrt.default, aten.tanh.default}
"""Functions of one number whose small results torch and ONNX Runtime have right to a few roundings of themselves."""
_CHOOSE = {aten.sort.default, aten.sort.stable, aten.topk.default, aten.max.dim, aten.min.dim, aten.mode.default,
           aten.kthvalue.default, aten.median.dim, aten.nanmedian.dim, aten.cummax.default, aten.cummin.default,
           aten.max_pool2d_with_indices.default, aten.max_pool3d_with_indices.default}  # fmt: skip
"""Ops of several results, which are elements of their operand, or their places."""


def is_exact(node: fx.Node) -> bool:
    """Whether an element of the result depends on few operands, and is off by a few roundings of its own at most.

    IEEE 754 asks for one of sums, products and quotients of two numbers; what chooses, moves or shows does not round.
    """
    if node.target in SUMS:
        return bool(factor(node.args, node.kwargs) == 1)  # else two roundings
    if node.target is operator.getitem:
        return getattr(node.args[0], "target", None) in _CHOOSE
    is_known = node.target in _OTHERS or node.target in ELEMENTARY
    return is_known or (isinstance(node.target, torch._ops.OpOverload) and node.target.is_view)


def right_elements(expected: torch.Tensor, value: torch.Tensor) -> torch.Tensor | None:
    """Where two floating tensors are equal to within a few roundings of the element; None where they are everywhere.

    So a mask of -1e9 or -1e4, far from the largest number of its dtype, is no measure for what it leaves as it is.
    """
    if all(_are_right(one, other).all() for _, (one, other) in blocks([expected, value])):
        return None
    return _are_right(expected, value)


def _are_right(expected: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    exact = expected.double()
    allowed = rounding(expected.dtype) * exact.abs().clamp(min=torch.finfo(expected.dtype).smallest_normal)
    return (expected == value) | expected.isnan() | ((exact - value.double()).abs() <= allowed)
