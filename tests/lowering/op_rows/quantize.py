"""To a quantized dtype and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
import torch.ao.quantization.fx._decomposed

from op_rows.fake_quantize import SCALES, values
from op_rows.row import HALF, Row, Sample, case, new

ops = torch.ops.quantized_decomposed
TYPES = ((0, 255, torch.uint8), (-128, 127, torch.int8), (-8, 7, torch.int8), (-(2**15), 2**15 - 1, torch.int16))
TO = (torch.float32, *HALF)
QUANTIZED = (torch.uint8, torch.int8, torch.int32)


def numbers(dtype: torch.dtype) -> Iterator[Sample]:
    for quant_min, quant_max, to in TYPES:
        for scale in SCALES:
            for zero_point in (0, 3):
                x = values(dtype, scale, zero_point)
                yield case(x[~x.isnan()], scale, zero_point, quant_min, quant_max, to)
    yield from (case(new(dtype, *size), 0.1, 3, 0, 255, torch.uint8) for size in ((), (0, 3), (2, 3, 4)))


def tensors(dtype: torch.dtype) -> Iterable[Sample]:
    for (x, scale, zero_point, *rest), _ in numbers(dtype):
        for of in (torch.float32, torch.float64):
            yield case(x, torch.tensor([scale], dtype=of), torch.tensor([zero_point]), *rest)


def channels(dtype: torch.dtype) -> Iterable[Sample]:
    zero_points = torch.tensor([0, 3, 7, 1])
    for quant_min, quant_max, to in TYPES:
        x = torch.stack([values(dtype, s, z) for s, z in zip(SCALES, zero_points.tolist(), strict=True)])
        x = x.nan_to_num()
        for of in (torch.float32, torch.float64):
            yield case(x, torch.tensor(SCALES, dtype=of), zero_points, 0, quant_min, quant_max, to)
            yield case(x.t(), torch.tensor(SCALES, dtype=of), zero_points.int(), 1, quant_min, quant_max, to)
    yield case(new(dtype, 2, 4, 3), torch.tensor(SCALES), zero_points, 1, 0, 255, torch.uint8)


def whole_numbers(dtype: torch.dtype) -> Iterator[Sample]:
    limits = torch.iinfo(dtype)
    for x in (torch.arange(-128, 256).to(dtype), new(dtype), new(dtype, 0, 3), torch.tensor([limits.min, limits.max])):
        for to in (None, *TO):
            for zero_point in (0, 3, 200):
                yield case(x.to(dtype), 0.0123, zero_point, limits.min, limits.max, dtype, out_dtype=to)


def whole_numbers_by_tensors(dtype: torch.dtype) -> Iterable[Sample]:
    for (x, scale, zero_point, *rest), kwargs in whole_numbers(dtype):
        for of in (torch.float32, torch.float64):
            yield case(x, torch.tensor(scale, dtype=of), torch.tensor(zero_point), *rest, **kwargs)


def whole_channels(dtype: torch.dtype) -> Iterable[Sample]:
    limits = torch.iinfo(dtype)
    x = torch.arange(-128, 256).to(dtype).reshape(4, -1)
    for to in (None, *TO):
        for zero_points in (
            None,
            torch.tensor([0, 3, 200, -7]),
            torch.tensor([0, 3, 7, 120], dtype=dtype),
            torch.rand(4),
        ):
            for of in (torch.float32, torch.float64):
                scales = torch.tensor(SCALES, dtype=of)
                yield case(x, scales, zero_points, 0, limits.min, limits.max, dtype, out_dtype=to)
                yield case(x.t(), scales, zero_points, 1, limits.min, limits.max, dtype, out_dtype=to)


FROM = (torch.float32, *HALF)

ROWS = (
    Row(ops.quantize_per_tensor.default, (), numbers, FROM),
    Row(ops.quantize_per_tensor.tensor, (), tensors, FROM),
    Row(ops.quantize_per_channel.default, (), channels, FROM),
    Row(ops.dequantize_per_tensor.default, (), whole_numbers, QUANTIZED),
    Row(ops.dequantize_per_tensor.tensor, (), whole_numbers_by_tensors, QUANTIZED),
    Row(ops.dequantize_per_channel.default, (), whole_channels, QUANTIZED),
)
