"""Patches and resampled images."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from op_rows.row import FLOATS, HALF, SUM, Row, Sample, case, new

aten = torch.ops.aten

PATCHES = (
    # kernel, dilation, padding, stride
    ([2, 3], [1, 1], [0, 0], [1, 1]),
    ([2, 2], [2, 1], [1, 2], [2, 3]),
    ([3, 1], [1, 3], [1, 0], [3, 2]),
)


def cut(dtype: torch.dtype) -> Iterable[Sample]:
    for patches in PATCHES:
        yield case(new(dtype, 2, 3, 5, 6), *patches)
    yield case(new(dtype, 3, 5, 6), *PATCHES[1])
    yield case(new(dtype, 0, 3, 5, 6), *PATCHES[1])


def put_together(dtype: torch.dtype) -> Iterable[Sample]:
    for patches in PATCHES:
        columns = aten.im2col.default(new(dtype, 2, 3, 5, 6), *patches)
        yield case(columns, [5, 6], *patches)
        yield case(columns[0], [5, 6], *patches)


def resampled(dtype: torch.dtype) -> Iterable[Sample]:
    for size, steps in (((7, 9), [3, 4]), ((4, 5), [9, 5]), ((8, 3), [1, 6]), ((3, 8), [3, 1])):
        for align_corners in (False, True):
            yield case(new(dtype, 2, 3, *size), steps, align_corners)
    yield case(new(dtype, 1, 1, 6, 6), [4, 4], False, 0.7, 0.75)


def resampling_gradients(dtype: torch.dtype) -> Iterable[Sample]:
    for (x, steps, *rest), _ in resampled(dtype):
        yield case(new(dtype, *x.shape[:2], *steps), steps, list(x.shape), *rest)


def resampling_rows() -> Iterable[Row]:
    for kind in ("bilinear", "bicubic"):
        forward = getattr(aten, f"_upsample_{kind}2d_aa").default
        backward = getattr(aten, f"_upsample_{kind}2d_aa_backward").default
        yield Row(forward, (), resampled, (torch.float32, torch.float64), SUM)
        yield Row(backward, (), resampling_gradients, (torch.float32, torch.float64), SUM)


ROWS = (
    Row(aten.im2col.default, (), cut, (*FLOATS, torch.bool)),
    Row(aten.col2im.default, (), put_together, (torch.float32, *HALF), SUM),
    *resampling_rows(),
)
