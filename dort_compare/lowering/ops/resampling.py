"""Images made smaller or larger with a filter as wide as what one new pixel covers, and the gradients of that."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir
import torch
from torch import Tensor

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.precision import in_float32, opmath
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import shape_of
from dort_compare.lowering.windows import Windows, window_sums

aten = torch.ops.aten
Filter = Callable[[Tensor], Tensor]


def _linear(x: Tensor) -> Tensor:
    return (1 - x.abs()).clamp(min=0)


def keys(x: Tensor, a: float) -> Tensor:
    """Keys' cubic convolution, of distances."""
    x = x.abs()
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros(())))


def _cubic(x: Tensor) -> Tensor:
    """As Pillow has it."""
    return keys(x, -0.5)


_HALF_WIDTH: dict[Filter, int] = {_linear: 1, _cubic: 2}


def scale_of(size: int, steps: int, align_corners: bool, factor: float | None, dtype: torch.dtype) -> Tensor:
    """How many pixels of the image one new pixel is wide, rounded to ``dtype`` as torch's kernels do."""
    if align_corners:
        return torch.tensor((size - 1) / (steps - 1) if steps > 1 else 0.0, dtype=dtype)
    return torch.tensor(1 / factor if factor else size / steps, dtype=dtype)


def _windows(op: Builder, size: int, steps: int, filter_: Filter, align_corners: bool, factor: float | None) -> Windows:
    """The source pixels of each new pixel and their weights, in the dtype and the order of torch's own arithmetic."""
    dtype = opmath(op.result.dtype)
    scale = scale_of(size, steps, align_corners, factor, dtype)
    stretch = scale.clamp(min=1)
    support = _HALF_WIDTH[filter_] * stretch
    centre = scale * (torch.arange(steps, dtype=dtype) + 0.5)
    first = (centre - support + 0.5).long().clamp(min=0)
    last = (centre + support + 0.5).long().clamp(max=size) - 1
    places = first.unsqueeze(1) + torch.arange(int((last - first).max()) + 1)
    present = places <= last.unsqueeze(1)
    weights = filter_((places - centre.unsqueeze(1) + 0.5) / stretch) * present
    weights = weights / weights.sum(1, keepdim=True)
    return Windows(places.clamp(max=size - 1), weights.double(), present)


def _resampled(
    op: Builder,
    x: ir.Value,
    sizes: Sequence[int],
    steps: Sequence[int],
    filter_: Filter,
    align_corners: bool,
    factors: Sequence[float | None],
    backward: bool = False,
) -> ir.Value:
    """Columns, then rows, from ``sizes`` to ``steps``; backward the other way."""
    if not op.result.dtype.is_floating_point:
        raise op.unsupported("images of integers")
    if steps[1] == 1 and steps[0] != sizes[0] and op.result.device.type == "cpu" and not backward:
        raise op.unsupported("a result one pixel wide, all rows of which torch computes from the first")
    if not all(isinstance(n, int) for n in (*sizes, *steps)):
        raise op.unsupported("a symbolic size")
    for d in (1, 0):
        windows = _windows(op, sizes[d], steps[d], filter_, align_corners, factors[d])
        windows = windows.transposed(sizes[d]) if backward else windows
        x = window_sums(op, x, 2 + d, 4, windows, opmath(op.result.dtype))
    return x


def _register(filter_: Filter, forward: torch._ops.OpOverload, backward: torch._ops.OpOverload) -> None:
    @lowering(forward)
    @in_float32
    def upsample(
        op: Builder,
        x: ir.Value,
        output_size: Sequence[int],
        align_corners: bool,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> ir.Value:
        """_upsample_bilinear2d_aa(Tensor self, SymInt[2] output_size, bool align_corners, ...) -> Tensor"""
        sizes: Sequence[int] = shape_of(x)[2:]  # type: ignore[assignment]
        return _resampled(op, x, sizes, output_size, filter_, align_corners, (scales_h, scales_w))

    @lowering(backward)
    @in_float32
    def upsample_backward(
        op: Builder,
        grad: ir.Value,
        output_size: Sequence[int],
        input_size: Sequence[int],
        align_corners: bool,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> ir.Value:
        """_upsample_bilinear2d_aa_backward(Tensor grad_output, SymInt[2] output_size, SymInt[4] input_size, ...)
        -> Tensor
        """
        factors = (scales_h, scales_w)
        return _resampled(op, grad, input_size[2:], output_size, filter_, align_corners, factors, backward=True)


_register(_linear, aten._upsample_bilinear2d_aa.default, aten._upsample_bilinear2d_aa_backward.default)
_register(_cubic, aten._upsample_bicubic2d_aa.default, aten._upsample_bicubic2d_aa_backward.default)
