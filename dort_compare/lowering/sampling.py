"""Which pixels every place of a grid reads, and with what weights."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.precision import opmath
from dort_compare.lowering.values import shape_of

LINEAR, NEAREST, CUBIC = 0, 1, 2
"""Torch's numbers of the modes of interpolation."""
ZEROS, BORDER, REFLECTION = 0, 1, 2
"""Torch's numbers of the modes of padding."""


@dataclass(frozen=True)
class Axis:
    """One coordinate of every place, in pixels, and how much it changes with the number in the grid."""

    position: ir.Value
    slope: ir.Value
    size: int


def _axis(op: Builder, number: ir.Value, size: int, padding_mode: int, align_corners: bool) -> Axis:
    """From -1 and 1 to the first and last pixel: to their centres, or else to their outer edges."""
    constant = functools.partial(op.const, dtype=opmath(op.result_dtype))
    shifted = op.Add(number, constant(1))
    if align_corners:
        position = op.Mul(op.Div(shifted, constant(2)), constant(size - 1))
    else:
        position = op.Div(op.Sub(op.Mul(shifted, constant(size)), constant(1)), constant(2))
    slope = constant((size - 1 if align_corners else size) / 2)
    if padding_mode == REFLECTION:
        low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
        position, sign = _reflected(op, position, low, high)
        slope = op.Mul(slope, sign)
    if padding_mode in (BORDER, REFLECTION):
        first, last = constant(0), constant(size - 1)
        moves = op.And(op.Greater(position, first), op.Less(position, last))
        slope = op.Where(moves, slope, first)
        position = op.Max(op.Min(position, last), first)
    return Axis(position, slope, size)


def _reflected(op: Builder, position: ir.Value, low: float, high: float) -> tuple[ir.Value, ir.Value]:
    """Thrown back at ``low`` and ``high`` until it lies between them; and the direction in which it moves then."""
    constant = functools.partial(op.const, dtype=opmath(op.result_dtype))
    if low == high:
        return op.Mul(position, constant(0)), constant(0)
    distance = op.Sub(position, constant(low))
    towards = op.Where(op.Less(distance, constant(0)), constant(-1), constant(1))
    distance, span = op.Abs(distance), constant(high - low)
    rest = op.Mod(distance, span, fmod=1)
    even = op.Equal(op.Mod(op.Floor(op.Div(distance, span)), constant(2), fmod=1), constant(0))
    inside = op.Add(op.Where(even, rest, op.Sub(span, rest)), constant(low))
    return inside, op.Where(even, towards, op.Neg(towards))


@dataclass(frozen=True)
class Corner:
    """The pixel of each place at one corner of the cell around it: its number, and along each axis its weight.

    ``signs``: how the weight along an axis changes with the position.
    """

    pixel: ir.Value
    exists: ir.Value
    weights: tuple[ir.Value, ...]
    signs: tuple[int, ...]

    def weight(self, op: Builder) -> ir.Value:
        """The weight of each place's pixel, for all channels."""
        return op.Unsqueeze(functools.reduce(op.Mul, self.weights), [1])


def _corners(op: Builder, axes: Sequence[Axis], linear: bool) -> list[Corner]:
    choices = [_neighbours(op, axis) if linear else [_nearest(op, axis)] for axis in axes]
    corners = []
    for chosen in itertools.product(*choices):
        exists = functools.reduce(
            op.And, [_is_inside(op, index, axis) for (index, *_), axis in zip(chosen, axes, strict=True)]
        )
        pixel = op.const(0)
        for (index, *_), axis in zip(chosen, axes, strict=True):
            safe = op.Where(exists, index, op.const(0, opmath(op.result_dtype)))
            pixel = op.Add(op.Mul(pixel, op.const(axis.size)), op.cast(safe, torch.int64))
        corners.append(
            Corner(pixel, exists, tuple(weight for _, weight, _ in chosen), tuple(sign for *_, sign in chosen))
        )
    return corners


Choice = tuple[ir.Value, ir.Value, int]


def _neighbours(op: Builder, axis: Axis) -> list[Choice]:
    one = op.const(1, opmath(op.result_dtype))
    before = op.Floor(axis.position)
    after = op.Add(before, one)
    return [(before, op.Sub(after, axis.position), -1), (after, op.Sub(axis.position, before), 1)]


def _nearest(op: Builder, axis: Axis) -> Choice:
    return op.Round(axis.position), op.const([[1]], opmath(op.result_dtype)), 0


def _is_inside(op: Builder, index: ir.Value, axis: Axis) -> ir.Value:
    dtype = opmath(op.result_dtype)
    return op.And(op.GreaterOrEqual(index, op.const(0, dtype)), op.Less(index, op.const(axis.size, dtype)))


@dataclass(frozen=True)
class Sampling:
    """The corners that every place of a grid reads; ``image`` and ``samples`` are sizes."""

    image: list[int]
    samples: list[int]
    axes: list[Axis]
    corners: list[Corner]

    @classmethod
    def of(
        cls, op: Builder, x: ir.Value, grid: ir.Value, interpolation_mode: int, padding_mode: int, align_corners: bool
    ) -> Sampling:
        """Refuses what has no such corners."""
        if interpolation_mode not in (LINEAR, NEAREST):
            raise op.unsupported("cubic sampling, or its gradient")
        image = [size for size in shape_of(x) if isinstance(size, int)]
        samples = [size for size in shape_of(grid)[1:-1] if isinstance(size, int)]
        if len(image) + len(samples) < 2 * len(shape_of(x)) - 2 or 0 in (*image, *samples):
            raise op.unsupported("sampling of symbolic or no sizes")
        spatial, axes = image[2:], []
        for d, size in enumerate(spatial):
            numbers = op.Gather(grid, op.const(len(spatial) - 1 - d), axis=-1)
            flat = op.Reshape(numbers, [image[0], math.prod(samples)])
            axes.append(_axis(op, flat, size, padding_mode, align_corners))
        return cls(image, samples, axes, _corners(op, axes, linear=interpolation_mode == LINEAR))

    def pixels(self, op: Builder, x: ir.Value) -> ir.Value:
        """An image as (batch, channels, pixels)."""
        return op.Reshape(x, [*self.image[:2], math.prod(self.image[2:])])

    def places(self, op: Builder, y: ir.Value) -> ir.Value:
        """A result, or its gradient, as (batch, channels, places)."""
        return op.Reshape(y, [*self.image[:2], math.prod(self.samples)])

    def targets(self, op: Builder, corner: Corner) -> ir.Value:
        """(batch, channels, places): the number of the pixel of each place."""
        return op.Expand(op.Unsqueeze(corner.pixel, [1]), [1, self.image[1], 1])
