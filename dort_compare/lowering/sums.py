"""Sums, means and running sums of many terms, in two stages.

ONNX Runtime (1.31) adds up the terms one after another, or a few of such sums side by side. Of n terms that are alike
the rounding errors are, too: sums of 8192 rows of 0.1 are off by 6e-5, one of 8 million by 1 %. The sum of the sums of
some sqrt(n) terms each is as precise as torch's, and takes no longer (`benchmarks/long_sums.py`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import onnx_ir as ir

from dort_compare.lowering.builder import Builder, is_floating

_MANY = 256
_MANY_IN_ROWS = 2**14
"""Along rows ONNX Runtime adds up more sums side by side; and its fused layers are made of one reduction."""


class _Stages(NamedTuple):
    """``blocks`` are the sizes of the tensor cut into blocks; ``within`` and ``across`` what to reduce one by one."""

    blocks: list[int]
    within: list[int]
    across: list[int]


def add_up(op: Builder, operator: str, x: ir.Value, dims: Sequence[int], *, keepdims: bool) -> ir.Value:
    """``operator``, ReduceSum or ReduceMean, of ``x`` along ``dims``, counted from the front and at least one."""
    reduce = getattr(op, operator)
    stages = _stages(x, dims) if is_floating(x) else None
    if stages is None:
        return reduce(x, list(dims), keepdims=int(keepdims))
    of_blocks = reduce(op.Reshape(x, stages.blocks), stages.within, keepdims=0)
    total = reduce(of_blocks, stages.across, keepdims=0)
    return op.Unsqueeze(total, sorted(dims)) if keepdims else total


def running_sum(op: Builder, x: ir.Value, dim: int) -> ir.Value:
    """The sums of ``x`` up to each element along ``dim``, counted from the front: within blocks of many terms, and to
    each block what those before add up to."""
    stages = _stages(x, [dim], many_in_rows=_MANY) if is_floating(x) else None
    if stages is None or x.shape is None:
        return op.CumSum(x, op.const(dim))
    within = op.CumSum(op.Reshape(x, stages.blocks), op.const(dim + 1))
    of_blocks = op.Slice(within, [-1], [stages.blocks[dim + 1]], [dim + 1])
    return op.Reshape(op.Add(within, op.CumSum(of_blocks, op.const(dim), exclusive=1)), list(x.shape.numpy()))


def _stages(x: ir.Value, dims: Sequence[int], many_in_rows: int = _MANY_IN_ROWS) -> _Stages | None:
    """How the sum goes in two stages; None where its terms are few, or a size is not known."""
    sizes = [size for size in x.shape or () if isinstance(size, int)]
    if x.shape is None or len(sizes) < len(x.shape) or 0 in sizes:
        return None
    found = _Stages([], [], [])
    for is_reduced, run in itertools.groupby(range(len(sizes)), lambda d: d in dims):
        places = list(run)
        if not is_reduced:
            found.blocks.extend(sizes[d] for d in places)
            continue
        terms = math.prod(sizes[d] for d in places)
        are_rows = places[-1] == len(sizes) - 1 and len(dims) < len(sizes)
        many = many_in_rows if are_rows else _MANY
        number = _middle_divisor(terms) if terms > many else 1
        if number > 1:
            found.across.append(len(found.blocks) - len(found.within))
            found.blocks.append(number)
        found.within.append(len(found.blocks))
        found.blocks.append(terms // number)
    return found if found.across else None


def _middle_divisor(n: int) -> int:
    """The divisor of ``n`` nearest below its square root; 1 for a prime."""
    return next(d for d in range(math.isqrt(n), 0, -1) if n % d == 0)
