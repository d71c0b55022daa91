"""Rounding to the steps of a quantized dtype."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from op_rows.row import FLOATS, Row, Sample, case, new, special

aten = torch.ops.aten
RANGES = ((0, 255), (-128, 127), (0, 15), (-(2**31), 2**31 - 1))
"""The last beyond what float32 holds."""
SCALES = (0.1, 0.0123, 1.0, 7.3e-5)


def values(dtype: torch.dtype, scale: float, zero_point: float) -> Tensor:
    """Between two steps, halfway and a rounding beside it, within the range and without; and what is not finite."""
    halves = ((torch.arange(-300, 300, dtype=torch.float64) + 0.5 - zero_point) * scale).to(dtype)
    beside = [torch.nextafter(halves, torch.tensor(to, dtype=dtype)) for to in (torch.inf, -torch.inf)]
    far = torch.tensor([1e18, -1e18, 3e30, -3e30]).to(dtype)
    return torch.cat([new(dtype, 100), new(dtype, 100) * 30 * scale, halves, *beside, special(dtype), far])


def numbers(dtype: torch.dtype) -> Iterable[Sample]:
    for quant_min, quant_max in RANGES:
        for scale in SCALES:
            for zero_point in (0, 3, min(quant_max, 127)):
                yield case(values(dtype, scale, zero_point), scale, zero_point, quant_min, quant_max)
    yield from (case(new(dtype, *size), 0.1, 3, 0, 255) for size in ((), (0, 3), (2, 3, 4)))
    yield case(new(dtype, 4, 3).t(), 0.1, 3, 0, 255)


def tensors(dtype: torch.dtype) -> Iterable[Sample]:
    on, off = torch.ones(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    for (x, scale, zero_point, *limits), _ in numbers(dtype):
        yield case(x, torch.tensor([scale]), torch.tensor([zero_point], dtype=torch.int32), on, *limits)
    x, zero_point = values(dtype, 0.1, 3), torch.tensor(3, dtype=torch.int32)
    yield from (case(x, torch.tensor(0.1, dtype=of), zero_point, on, 0, 255) for of in FLOATS)
    yield case(x, torch.tensor(0.1), torch.tensor([3.7]), on, 0, 255)
    yield case(x, torch.tensor(0.1), torch.tensor([300]), on, 0, 255)
    yield from (case(new(dtype, *size), torch.tensor(0.1), zero_point, off, 0, 255) for size in ((), (2, 3)))
    yield case(special(dtype), torch.tensor([0.1]), zero_point, off[0].int(), 0, 255)
    yield case(special(dtype), torch.tensor([0.1]), zero_point, torch.tensor([0.5]), 0, 255)


def channels(dtype: torch.dtype) -> Iterator[Sample]:
    for quant_min, quant_max in RANGES:
        whole = torch.tensor([0, 3, min(quant_max, 127), 1], dtype=torch.int32)
        broken = torch.tensor([0.0, 3.37, 0.5, -1.123])
        for zero_points in (whole, whole.float(), broken, broken.half()):
            x = torch.stack([values(dtype, s, z) for s, z in zip(SCALES, zero_points.tolist(), strict=True)])
            yield case(x, torch.tensor(SCALES), zero_points, 0, quant_min, quant_max)
    scales, zero_points = torch.tensor([0.01, 0.02, 0.5]), torch.tensor([0, 1, 2], dtype=torch.int32)
    for shape, axis in (((2, 3, 4, 2), 1), ((4, 3), 1), ((3,), 0), ((0, 3), 1), ((3, 0), 0)):
        yield case(new(dtype, *shape), scales, zero_points, axis, -128, 127)


def learnt_numbers(dtype: torch.dtype) -> Iterable[Sample]:
    for (x, scale, zero_point, *limits), _ in numbers(dtype):
        if x.numel():
            for offset in (0.0, 0.5, -0.3):
                yield case(x, torch.tensor([scale]), torch.tensor([zero_point + offset]), *limits, 0.5)


def learnt_channels(dtype: torch.dtype) -> Iterable[Sample]:
    for (x, scales, zero_points, *rest), _ in channels(dtype):
        yield case(x, scales, zero_points.float(), *rest, 0.5)


def observed(dtype: torch.dtype) -> Iterable[Sample]:
    """Elements around 0, above and below, alike, and so small that their scale is bounded."""
    for quant_min, quant_max in ((0, 255), (-128, 127), (0, 127), (-8, 7), (-127, 127)):
        for symmetric in (False, True):
            for x in spreads(dtype):
                ends = x.aminmax()
                averages = [(new(dtype), new(dtype)), (torch.tensor(torch.inf), torch.tensor(-torch.inf))]
                averages += [(ends.min * 1.3, ends.max * 0.7)]
                for smallest, largest in averages:
                    yield observation(x, smallest, largest, quant_min, quant_max, symmetric=symmetric)
    x = new(dtype, 2, 3)
    for observes, quantizes in ((0, 1), (1, 0), (0, 0)):
        yield observation(x, ends.min, ends.max, 0, 255, observes=observes, quantizes=quantizes)
    for end in (torch.inf, -torch.inf, torch.nan):
        yield observation(torch.tensor([1.0, end, -2.0]), torch.tensor(-1.0), torch.tensor(2.0), 0, 255)


def spreads(dtype: torch.dtype) -> Iterator[Tensor]:
    x = new(dtype, 3, 4)
    for size in (1e-12, 1e-5, 1e-3, 1.0, 1e4):
        yield from (x * size, x.abs() * size, -x.abs() * size)
    yield from (
        torch.zeros(2),
        torch.ones(2),
        torch.tensor(-0.3),
        torch.tensor([-1.0, 1.0]),
        torch.tensor([-1e-4, 1e-4]),
    )


def observation(
    x: Tensor,
    smallest: Tensor,
    largest: Tensor,
    quant_min: int,
    quant_max: int,
    *,
    observes: int = 1,
    quantizes: int = 1,
    symmetric: bool = False,
    rows: bool = False,
) -> Sample:
    count = len(x) if rows else 1
    state = smallest, largest, torch.full((count,), 0.5), torch.ones(count, dtype=torch.int32)
    switches = torch.tensor([observes]), torch.tensor([quantizes])
    axis = 0 if rows else -1
    return case(x, *switches, *state, 0.01, quant_min, quant_max, axis, rows, symmetric)


def observed_rows(dtype: torch.dtype) -> Iterable[Sample]:
    scales = torch.logspace(-9, 4, 14).unsqueeze(1)
    for shape in ((14, 5), (14, 2, 3), (14, 2, 2, 2)):
        x = (new(dtype, *shape).reshape(14, -1) * scales).reshape(shape)
        x[3] = x[3].abs()
        for symmetric in (False, True):
            averages = [(torch.full((14,), torch.inf), torch.full((14,), -torch.inf)), (-scales[:, 0], scales[:, 0])]
            for smallest, largest in averages:
                yield observation(x, smallest, largest, -128, 127, rows=True, symmetric=symmetric)
    for observes, quantizes in ((0, 1), (1, 0), (0, 0)):
        yield observation(x, *averages[1], -128, 127, rows=True, observes=observes, quantizes=quantizes)


def observations(dtype: torch.dtype) -> Iterable[Sample]:
    yield from observed(dtype)
    yield from observed_rows(dtype)


ROWS = (
    Row(aten.fake_quantize_per_tensor_affine_cachemask.default, (), numbers, FLOATS),
    Row(aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default, (), tensors, FLOATS),
    Row(aten.fake_quantize_per_channel_affine_cachemask.default, (), channels, FLOATS),
    Row(aten._fake_quantize_learnable_per_tensor_affine.default, (), learnt_numbers, FLOATS),
    Row(aten._fake_quantize_learnable_per_channel_affine.default, (), learnt_channels, FLOATS),
    Row(aten._fused_moving_avg_obs_fq_helper_functional.default, (), observations, (torch.float32,)),
)
