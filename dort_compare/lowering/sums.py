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
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.sizes import minus, product, times
from dort_compare.lowering.values import Dim, dtype_of, is_floating

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

    terms: Dim
    merged: list[Dim] = field(default_factory=list)
    padded: list[Dim] = field(default_factory=list)
    blocks: list[Dim] = field(default_factory=list)
    within: list[int] = field(default_factory=list)
    across: list[int] = field(default_factory=list)


def add_up(
    op: Builder, operator: str, x: ir.Value, dims: Sequence[int], *, keepdims: bool, precise: bool = False
) -> ir.Value:
    """``operator``, ReduceSum or ReduceMean, of ``x`` along ``dims``, counted from the front and at least one.

    A ``precise`` one goes in two stages along rows of more than `_MANY` terms already, others along longer ones alone
    (`_MANY_IN_ROWS`): a mean that is taken from its terms, of which, where they are alike, its error is all that is
    left, and a variance.
    """
    stages = _stages(op, x, dims, _MANY if precise else _MANY_IN_ROWS[operator])
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
    stages = _stages(op, x, [dim], _MANY)
    if stages is None:
        return _added_up(op, x, dim)
    within = _added_up(op, _in_blocks(op, x, stages), dim + 1)
    of_blocks = op.Slice(within, [-1], op.dims([stages.blocks[dim + 1]]), [dim + 1])
    before = op.CumSum(of_blocks, op.const(dim), exclusive=1)
    padded = _reshaped(op, op.Add(within, before), stages.padded)
    return padded if stages.padded == stages.merged else op.Slice(padded, [0], op.dims([stages.merged[dim]]), [dim])


def _added_up(op: Builder, x: ir.Value, dim: int) -> ir.Value:
    """CumSum, of rows by way of columns, of which ONNX Runtime adds whole ones at a time: faster on CPU, but not in
    float64, for which Transpose is slow."""
    last = len(x.shape or ()) - 1
    if op.on_cuda or dim != last or last == 0 or dtype_of(x) != torch.float32:
        return op.CumSum(x, op.const(dim))
    columns = op.CumSum(op.Transpose(x, perm=[last, *range(last)]), op.const(0))
    return op.Transpose(columns, perm=[*range(1, last + 1), 0])


def _in_blocks(op: Builder, x: ir.Value, stages: _Stages) -> ir.Value:
    if stages.padded != stages.merged:
        missing = [minus(op, more, size) for more, size in zip(stages.padded, stages.merged, strict=True)]
        none: list[Dim] = [0] * len(missing)
        x = op.Pad(_reshaped(op, x, stages.merged), op.dims([*none, *missing]))
    return _reshaped(op, x, stages.blocks)


def _reshaped(op: Builder, x: ir.Value, sizes: Sequence[Dim]) -> ir.Value:
    is_static = all(isinstance(size, int) for size in sizes)
    return op.Reshape(x, op.dims(sizes)) if is_static else op.Reshape(x, op.dims(sizes), allowzero=1)


def _stages(op: Builder, x: ir.Value, dims: Sequence[int], many_in_rows: int) -> _Stages | None:
    """How the sum goes in two stages; None for integers, where its terms are known to be few, and where their number is
    not known on CUDA, whose kernels add in pairs."""
    if x.shape is None or not is_floating(x) or 0 in x.shape:
        return None
    own = [x.shape[d] for d in dims]
    known = [size for size in own if isinstance(size, int)]
    are_rows = min(dims) == len(x.shape) - len(dims) > 0
    is_known = len(known) == len(own)
    are_few = is_known and math.prod(known) <= (many_in_rows if are_rows else _MANY)
    if are_few or (not is_known and op.on_cuda):
        return None
    unknown = [d for d, size in enumerate(x.shape) if not isinstance(size, int)]
    is_inferred = len(unknown) == 1 and unknown[0] not in dims
    sizes = [-1 if is_inferred and d in unknown else op.own_size(x, d) for d in range(len(x.shape))]
    found = _Stages(product(op, [sizes[d] for d in dims]))
    for is_reduced, places in itertools.groupby(range(len(sizes)), lambda d: d in dims):
        run = [sizes[d] for d in places]
        merged = [product(op, run)] if is_reduced else run
        cuts = [_cut(op, merged[0])] if is_reduced else [(size, 1) for size in run]
        found.merged.extend(merged)
        found.padded.extend(times(op, number, length) for number, length in cuts)
        for number, length in cuts:
            if is_reduced and number != 1:
                found.across.append(len(found.blocks) - len(found.within))
            if not is_reduced or number != 1:
                found.blocks.append(number)
            if length != 1:
                found.within.append(len(found.blocks))
                found.blocks.append(length)
    return found if found.within and found.across else None


def _cut(op: Builder, terms: Dim) -> tuple[Dim, Dim]:
    """Number and length of blocks for so many terms and a few zeros, both near the root; no zeros where a divisor is
    near, at least one where the number is not known."""
    if not isinstance(terms, int):
        root = op.Add(op.cast(op.Sqrt(op.cast(terms, torch.float32)), torch.int64), 1)
        return root, root
    if terms <= _FEW:
        return terms, 1
    root = math.isqrt(terms)
    divisor = next(d for d in range(root, 0, -1) if terms % d == 0)
    return (divisor, terms // divisor) if 4 * divisor >= root else (-(-terms // root), root)
