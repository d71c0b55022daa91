"""Patches and resampled images."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import torch

from op_rows.row import FLOATS, HALF, SUM, Row, Sample, Samples, case, new

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


def interpolations(rank: int, can_align: bool) -> Samples:
    """Of images of ``rank`` dimensions, some with torch's scale factors; of nearest pixels no corners are aligned."""
    sizes = ((5, 3, 4), (2, 7, 3), (4, 4, 6))
    steps = ((9, 6, 4), (3, 2, 3), (1, 13, 4), (4, 5, 1))

    def samples(dtype: torch.dtype) -> Iterable[Sample]:
        corners = ([False], [True]) if can_align else ([],)
        for size, step, aligned in itertools.product(sizes, steps, corners):
            yield case(new(dtype, 2, 3, *size[:rank]), list(step[:rank]), *aligned)
        factors = (1.8, 0.55, 2.0)[:rank]
        scaled = [int(size * factor) for size, factor in zip(sizes[2], factors, strict=False)]
        yield case(new(dtype, 1, 2, *sizes[2][:rank]), scaled, *corners[0], *factors)
        for factor in (1.05, 2.05):  # which leaves the sizes as they are, or doubles them
            scaled = [int(size * factor) for size in (10, 9, 8)[:rank]]
            yield case(new(dtype, 1, 2, *(10, 9, 8)[:rank]), scaled, *corners[0], *[factor] * rank)
        if can_align:  # torch's meta kernels for nearest pixels refuse an empty image
            yield case(new(dtype, 0, 2, *sizes[0][:rank]), list(steps[0][:rank]), *corners[0])

    return samples


def gradients_of(samples: Samples) -> Samples:
    """For each image a gradient of what becomes of it."""

    def turned(dtype: torch.dtype) -> Iterable[Sample]:
        for (x, steps, *rest), _ in samples(dtype):
            yield case(new(dtype, *x.shape[:2], *steps), steps, list(x.shape), *rest)

    return turned


def interpolation_rows() -> Iterable[Row]:
    units = 2 * SUM  # places are rounded, in torch too
    for name, rank in (("linear1d", 1), ("bilinear2d", 2), ("trilinear3d", 3)):
        yield from interpolation_pair(f"upsample_{name}", interpolations(rank, can_align=True), units)
    yield from interpolation_pair("upsample_bicubic2d", interpolations(2, can_align=True), 2 * units)  # it is steeper
    for name, rank in itertools.product(("upsample_nearest", "_upsample_nearest_exact"), (1, 2, 3)):
        yield from interpolation_pair(f"{name}{rank}d", interpolations(rank, can_align=False), 0.0)


def interpolation_pair(name: str, samples: Samples, units: float) -> Iterable[Row]:
    yield Row(getattr(aten, name).default, (), samples, FLOATS, units)
    yield Row(getattr(aten, f"{name}_backward").default, (), gradients_of(samples), FLOATS, units or SUM)


def resampling_rows() -> Iterable[Row]:
    for kind in ("bilinear", "bicubic"):
        forward = getattr(aten, f"_upsample_{kind}2d_aa").default
        backward = getattr(aten, f"_upsample_{kind}2d_aa_backward").default
        yield Row(forward, (), resampled, (torch.float32, torch.float64), SUM)
        yield Row(backward, (), gradients_of(resampled), (torch.float32, torch.float64), SUM)


ROWS = (
    Row(aten.im2col.default, (), cut, (*FLOATS, torch.bool)),
    Row(aten.col2im.default, (), put_together, (torch.float32, *HALF), SUM),
    *resampling_rows(),
    *interpolation_rows(),
)
