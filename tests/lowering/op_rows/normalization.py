"""Normalization."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from op_rows.row import FLOATS, HALF, MATMUL, SUM, Row, Sample, case, new

aten = torch.ops.aten


def layers(dtype: torch.dtype) -> Iterable[Sample]:
    for shape, normalized in (((2, 3, 5), [5]), ((4, 3, 5), [3, 5]), ((6,), [6]), ((2, 4), [4]), ((0, 4), [4])):
        weight, bias = new(dtype, *normalized), new(dtype, *normalized)
        for parameters in ((weight, bias), (weight, None), (None, bias), (None, None)):
            yield case(new(dtype, *shape), normalized, *parameters, 1e-5)
    far, odd = new(dtype, 2, 64) + 100, new(dtype, 3, 8)
    odd[0, 2], odd[1, 1], odd[2, 3] = torch.inf, -torch.inf, torch.nan
    yield case(odd, [8], None, None, 1e-5)
    yield case(far, [64], None, None, 1e-3)


def layer_gradients(dtype: torch.dtype) -> Iterable[Sample]:
    for (x, normalized, weight, bias, eps), _ in layers(dtype):
        _, mean, rstd = aten.native_layer_norm.default(x, normalized, weight, bias, eps)
        mask = [True, weight is not None, bias is not None]
        yield case(new(dtype, *x.shape), x, normalized, mean, rstd, weight, bias, mask)
    yield case(new(dtype, *x.shape), x, normalized, mean, rstd, None, None, [True, False, False])


def groups(dtype: torch.dtype) -> Iterable[Sample]:
    for size, group in (((3, 4), 2), ((5,), 1), ((), 1), ((2, 2, 2), 4)):
        x, weight, bias = new(dtype, 2, 4, *size), new(dtype, 4), new(dtype, 4)
        positions = x[0, 0].numel()
        yield case(x, weight, bias, 2, 4, positions, group, 1e-5)
        yield case(x, None, None, 2, 4, positions, group, 1e-2)
    odd = new(dtype, 2, 4, 3)
    odd[0, 0, 1], odd[1, 2, 1] = torch.inf, -torch.inf
    yield case(odd, None, None, 2, 4, 3, 2, 1e-5)


def group_gradients(dtype: torch.dtype) -> Iterable[Sample]:
    for (x, weight, bias, *sizes, eps), _ in groups(dtype):
        _, mean, rstd = aten.native_group_norm.default(x, weight, bias, *sizes, eps)
        yield case(new(dtype, *x.shape), x, mean, rstd, weight, *sizes, [True, weight is not None, bias is not None])


def batches(dtype: torch.dtype) -> Iterable[Sample]:
    """Input, weight, bias, running mean, running variance; those of half precision have float32 parameters."""
    wide = torch.float32 if dtype in HALF else dtype
    for shape in ((4, 3), (3, 3, 5), (2, 3, 4, 2), (2, 3, 2, 3, 2)):
        statistics = new(wide, 3), new(wide, 3, low=0.5, high=2)
        yield case(new(dtype, *shape), new(wide, 3), new(wide, 3), *statistics)
        if wide == dtype:
            yield case(new(dtype, *shape), None, None, *statistics)


def batch_gradients(dtype: torch.dtype, *, reserve: bool = False) -> Iterable[Sample]:
    for (x, weight, bias, *running), _ in batches(dtype):
        if reserve and weight is None:
            continue
        _, *saved = aten._native_batch_norm_legit.no_stats(x, weight, bias, True, 0.1, 1e-5)
        rest = [new(torch.uint8, 0)] if reserve else []
        mask = [True, weight is not None, bias is not None]
        yield case(new(dtype, *x.shape), x, weight, *running, *saved, True, 1e-5, mask, *rest)
        if not reserve:
            yield case(new(dtype, *x.shape), x, weight, *running, *saved, False, 1e-2, mask)


def with_weights(dtype: torch.dtype) -> Iterable[Sample]:
    """torch cannot trace these overloads without weights."""
    yield from (case(*args, 0.3, 1e-5) for args, _ in batches(dtype) if args[1] is not None)


def with_arguments(dtype: torch.dtype, *rest: object) -> Iterable[Sample]:
    yield from (case(*args, *rest) for args, _ in batches(dtype))


WIDE = (torch.float32, torch.float64)
"""torch's tracing and its CPU kernel disagree on the dtype of the statistics that half precision saves."""


def weight_gradients(dtype: torch.dtype) -> Iterable[Sample]:
    for shape, dim in (((3, 4, 5), 0), ((3, 4), 1), ((3, 4, 5), 2)):
        v = new(dtype, *shape)
        g = new(dtype, *(n if d == dim else 1 for d, n in enumerate(shape)))
        norms = v.float().norm(dim=[d for d in range(len(shape)) if d != dim], keepdim=True)
        yield case(new(dtype, *shape), v, g, norms.to(torch.promote_types(dtype, torch.float32)), dim)


ROWS = (
    Row(aten._weight_norm_interface_backward.default, (), weight_gradients, WIDE, SUM),
    Row(aten.native_layer_norm.default, (), layers, FLOATS, SUM),
    Row(aten.native_layer_norm_backward.default, (), layer_gradients, FLOATS, SUM),
    Row(aten.native_group_norm.default, ("native_group_norm",), groups, FLOATS, MATMUL),
    Row(aten.native_group_norm_backward.default, (), group_gradients, FLOATS, MATMUL),
    Row(
        aten._native_batch_norm_legit_functional.default,
        (),
        lambda d: (c for train in (True, False) for c in with_arguments(d, train, 0.3, 1e-5)),
        WIDE,
        SUM,
    ),
    Row(
        aten._native_batch_norm_legit.no_stats,
        (),
        lambda d: (case(*args[:3], True, 0.1, 1e-5) for args, _ in batches(d)),
        WIDE,
        SUM,
    ),
    Row(aten._native_batch_norm_legit_no_training.default, (), lambda d: with_arguments(d, 0.1, 1e-5), WIDE, SUM),
    Row(aten._batch_norm_with_update_functional.default, (), with_weights, WIDE, SUM),
    Row(aten._batch_norm_no_update.default, (), with_weights, WIDE, SUM),
    Row(aten.native_batch_norm_backward.default, (), batch_gradients, FLOATS, SUM),
    Row(aten.batch_norm_backward.default, (), lambda d: batch_gradients(d, reserve=True), FLOATS, SUM),
)
