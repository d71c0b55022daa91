"""What kernels may lose, whatever the elements of their results: below the normal numbers, and in half precision."""

from __future__ import annotations

import math

import torch

from dort_compare.dtypes import HALF, coarsest
from dort_compare.measure.noise.by_element import works_by_element
from dort_compare.measure.noise.floor import rounding, smallest_normal
from dort_compare.measure.noise.in_float64 import InFloat64
from dort_compare.trace.definition import definition

aten = torch.ops.aten

_ADD_IN_HALF = {
    getattr(aten, name).default
    for name in (
        *("index_put", "_unsafe_index_put", "embedding_dense_backward", "_embedding_bag_backward"),
        *("unfold_backward", "col2im"),
        *("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward"),
        *("adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward"),
        *("avg_pool2d_backward", "avg_pool3d_backward"),
        *("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward"),
        *("reflection_pad1d_backward", "reflection_pad2d_backward", "reflection_pad3d_backward"),
        *("replication_pad1d_backward", "replication_pad2d_backward", "replication_pad3d_backward"),
    )
}
"""On the CPU. index_add, scatter_add and upsampling's gradients add up in float32, and round once."""


def underflow(op: InFloat64) -> float:
    """What a kernel may lose that goes through numbers below the smallest normal one, float32's for half precision.

    It is told by what may still multiply them: the largest operand, but for what is a mask.

    Some kernels take such numbers for zero, as AVX-512's products of bfloat16 do. One op that works element by element
    only rounds them, if it goes through any: `mish` multiplies one by -100.
    """
    is_single = works_by_element(op.replay, op.node)
    if is_single and definition(op.node.target) is None:
        return 0.0
    coarse = coarsest(op.replay.dtypes()) or torch.float32
    lost = smallest_normal(coarse) * max(1.0, op.replay.magnitude(math.sqrt(torch.finfo(torch.float32).max)))
    return rounding(torch.float32) * lost if is_single else lost


def error_of_coarse_operands(op: InFloat64, dtype: torch.dtype) -> float:
    """What torch's own kernel may err where the result has a finer ``dtype`` than an operand, as a share of its scale.

    A unit roundoff of that operand's, if it is of half precision: what works on it need not compute finer on the way.
    Fused attention on the CPU approximates the exponential to some 15 bits, however small the scores are.
    """
    coarse = coarsest(op.replay.dtypes())
    if coarse not in HALF or works_by_element(op.replay, op.node) or torch.finfo(coarse).eps <= torch.finfo(dtype).eps:
        return 0.0
    return torch.finfo(coarse).eps / 2


def error_of_sums_in_half(op: InFloat64, dtype: torch.dtype) -> float:
    """What torch's own kernel may err where each term is added to a result of half precision and the sum is rounded.

    A unit roundoff of the largest operand for every term: sums of terms that cancel by chance grow with the square root
    of their number, and so do the errors of rounding each. How many there are is what the op makes of ones.
    """
    if dtype not in HALF or op.node.target not in _ADD_IN_HALF or op.replay.is_chain:
        return 0.0
    counts = op.moved(torch.ones_like)
    if counts is None or not counts.numel():
        return 0.0
    return float(counts.max()) * torch.finfo(dtype).eps / 2 * op.replay.magnitude(torch.inf)
