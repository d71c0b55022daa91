"""Sums, means and running sums of many terms, in two stages.

ONNX Runtime (1.31) adds up the terms one after another, or a few of such sums side by side. Of n terms that are alike
the rounding errors are, too: sums of 8192 rows of 0.1 are off by 6e-5, one of 8 million by 1 %; in two stages, of some
sqrt(n) terms each, by 7e-7 and 2e-6 (`benchmarks/long_sums.py`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from dort_compare.lowering.builder import Builder, dtype_of, is_floating

_MANY = 256
_MANY_IN_ROWS = {"ReduceSum": 2**12, "ReduceMean": 2**14}
"""Along rows ONNX Runtime adds up more sums side by side; and its fused layers are made of one mean."""
_FEW = 16
"""A run of so few is left whole, for the second stage."""


@dataclass
class _Stages:
    """How a sum of so many ``terms`` goes.

    Sizes of the tensor: adjacent dimensions to reduce ``merged``, those ``padded`` by zeros, and cut into ``blocks``;
    of these, the dimensions ``within`` and then ``across`` blocks are to be reduced, counted as they are then.
    """

    terms: int
    merged: list[int] = field(default_factory=list)
    padded: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    within: list[int] = field(default_factory=list)
    across: list[int] = field(default_factory=list)


def add_up(op: Builder, operator: str, x: ir.Value, dims: Sequence[int], *, keepdims: bool) -> ir.Value:
    """``operator``, ReduceSum or ReduceMean, of ``x`` along ``dims``, counted from the front and at least one."""
    stages = _stages(x, dims, _MANY_IN_ROWS[operator])
    if stages is None:
        return getattr(op, operator)(x, list(dims), keepdims=int(keepdims))
    of_blocks = op.ReduceSum(_in_blocks(op, x, stages), stages.within, keepdims=0)
    total = op.ReduceSum(of_blocks, stages.across, keepdims=0)
    if operator == "ReduceMean":
        total = op.Div(total, op.const(stages.terms, dtype_of(x)))
    return op.Unsqueeze(total, sorted(dims)) if keepdims else total


def running_sum(op: Builder, x: ir.Value, dim: int) -> ir.Value:
    """The sums of ``x`` up to each element along ``dim``, counted from the front: within blocks of many terms, and to
    each block what those before add up to."""
    stages = _stages(x, [dim], _MANY)
    if stages is None:
        return op.CumSum(x, op.const(dim))
    within = op.CumSum(_in_blocks(op, x, stages), op.const(dim + 1))
    of_blocks = op.Slice(within, [-1], [stages.blocks[dim + 1]], [dim + 1])
    padded = op.Reshape(op.Add(within, op.CumSum(of_blocks, op.const(dim), exclusive=1)), stages.padded)
    return padded if stages.padded == stages.merged else op.Slice(padded, [0], [stages.merged[dim]], [dim])


def _in_blocks(op: Builder, x: ir.Value, stages: _Stages) -> ir.Value:
    if stages.padded != stages.merged:
        missing = [more - size for more, size in zip(stages.padded, stages.merged, strict=True)]
        x = op.Pad(op.Reshape(x, stages.merged), [0] * len(missing) + missing)
    return op.Reshape(x, stages.blocks)


def _stages(x: ir.Value, dims: Sequence[int], many_in_rows: int) -> _Stages | None:
    """How the sum goes in two stages; None for integers, where its terms are few, or where their number or more than
    one other size is not known."""
    if x.shape is None or not is_floating(x):
        return None
    sizes = [size if isinstance(size, int) else -1 for size in x.shape]
    terms = math.prod(sizes[d] for d in dims)
    are_rows = min(dims) == len(sizes) - len(dims) > 0
    is_known = sizes.count(-1) <= 1 and all(sizes[d] > 0 for d in dims) and 0 not in sizes
    if not is_known or terms <= (many_in_rows if are_rows else _MANY):
        return None
    found = _Stages(terms)
    for is_reduced, run in itertools.groupby(range(len(sizes)), lambda d: d in dims):
        own = [sizes[d] for d in run]
        cuts = [_cut(math.prod(own))] if is_reduced else [(size, 1) for size in own]
        found.merged.extend([math.prod(own)] if is_reduced else own)
        found.padded.extend(number * length for number, length in cuts)
        for number, length in cuts:
            if is_reduced and number > 1:
                found.across.append(len(found.blocks) - len(found.within))
            if not is_reduced or number > 1:
                found.blocks.append(number)
            if length > 1:
                found.within.append(len(found.blocks))
                found.blocks.append(length)
    return found if found.within and found.across else None


def _cut(terms: int) -> tuple[int, int]:
    """Number and length of blocks for so many terms and a few zeros, both near the root; no zeros where a divisor is
    near."""
    if terms <= _FEW:
        return terms, 1
    root = math.isqrt(terms)
    divisor = next(d for d in range(root, 0, -1) if terms % d == 0)
    return (divisor, terms // divisor) if 4 * divisor >= root else (-(-terms // root), root)
