"""Local error: what the ONNX nodes of one op add, fed torch's operands."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import fx

from dort_compare.dtypes import HALF
from dort_compare.measure.distance.distances import Distance, Number
from dort_compare.measure.distance.metrics import deviation, distance
from dort_compare.measure.noise.by_element import works_by_element
from dort_compare.measure.noise.edge import is_on_the_edge
from dort_compare.measure.noise.exact import is_exact, right_elements
from dort_compare.measure.noise.extremes import (
    but_for_extremes,
    extremes_of_both,
    has_same_extremes,
    masks_of_both,
    may_be_extreme,
    scale_but_for_extremes,
)
from dort_compare.measure.noise.floor import LOOSE, growth, rounding_of, rounding_of_sum
from dort_compare.measure.noise.in_float64 import InFloat64
from dort_compare.measure.noise.inner_magnitude import inner_magnitude
from dort_compare.measure.noise.kernels import error_of_coarse_operands, error_of_sums_in_half, underflow
from dort_compare.measure.noise.sensitivity import sensitivity
from dort_compare.measure.noise.small_parts import FAR_BEYOND, narrow_parts, small_elements, small_parts
from dort_compare.measure.noise.terms import terms
from dort_compare.measure.noise.ties import is_a_tie, is_another_order
from dort_compare.measure.noise.wild import overflows_by_chance, wild_elements
from dort_compare.trace import Replay

_TORCH_MAY = 8.0
"""So many floors torch's own kernel may err before it is no measure any more: some add up in half precision."""


@dataclass(frozen=True)
class LocalError:
    """The distance of ONNX's value from torch's on the same operands, and what of it is noise: of ONNX's error, or of
    torch's where that alone is more.

    The distances of both from float64 on these operands are only known where torch's and ONNX's are not equal to
    within a few roundings; they are infinite for the side that has NaN or inf, or numbers, where float64 has not.
    ``torch_departs`` says that torch's own kernel errs by more than noise. ``among`` marks the elements that all this
    is said of, where the others are no measure for them; None where it is said of all.
    """

    distance: Distance
    noise_floor: float
    is_noise: bool
    torch_departs: bool = False
    torch_vs_float64: float | None = None
    onnx_vs_float64: float | None = None
    among: torch.Tensor | None = field(default=None, compare=False, repr=False)


def local_error(
    replay: Replay,
    node: fx.Node,
    expected: torch.Tensor,
    value: torch.Tensor,
    whole: Distance,
    *,
    rounds_between: bool = False,
) -> LocalError:
    """The local error of ``value``, which ONNX Runtime computed for ``node`` where torch's kernel got ``expected``.

    ``whole`` is the distance of the two; ``rounds_between`` says that nodes may round to the dtype of the result on
    their way. NaN, inf, dtypes and shapes that differ are never noise, but for what a rounding of an operand makes
    or unmakes (`overflows_by_chance`). Of the rest is noise

    - what lies within a few unit roundoffs of the largest element (`rounding_of`), or of each element by itself where
      that is all that an op may err (`is_exact`);
    - beyond them, where both are held against float64 on the same operands, an error of at most those roundings, more
      of them where dozens of elements make one (`growth`), and

      - what eight roundings of each of the operands move, for an op that combines elements and so may cancel (an error
        that is backward stable; Higham, Accuracy and Stability of Numerical Algorithms, 1.5), or those of each result
        on its way (`sensitivity`),
      - what may be lost below the smallest normal number on the way (`underflow`),
      - twice the error of torch's own kernel. Where that is more than eight times all this, and than its operands
        hold (`error_of_coarse_operands`), or what adds up in half precision may lose (`error_of_sums_in_half`), it is
        torch that departs, unless both sides have the same: at a threshold float64 may lie on the other side than what
        float32 rounds;
    - of integers and booleans, what a rounding of half-precision operands decides (`is_on_the_edge`): ONNX Runtime
      computes those in float32; and the order of equal elements that are sorted, which torch leaves open (`is_a_tie`).

    Rows far smaller than the largest are judged once more, by their own size (`small_parts`; where they are of a few
    elements, what is far beyond noise, and ONNX's alone: `narrow_parts`), and so is what lies beside masks
    (`masks_of_both`) and beside elements that roundings move far more (`wild_elements`); of an op that works element by
    element in float32, or in half precision rounded once, ONNX's elements are (`small_elements`).
    """
    sides = _Sides(replay, node, expected, value, rounds_between)
    if whole.finding or whole.max_abs is None:
        return _of_finding(sides, whole)
    if not whole.equal and is_another_order(node, expected, value):
        return LocalError(Distance.of_equal(whole.numel, whole.numbers, whole.scale or 0), 0.0, is_noise=True)
    if not expected.is_floating_point():
        is_open = (
            whole.equal or is_a_tie(replay, node, expected, value) or is_on_the_edge(replay, node, expected, value)
        )
        return LocalError(whole, 0.0, is_open)
    found = _of_floats(sides, whole)
    return found if not found.is_noise or whole.equal or sides.are_right_by_element else _of_parts(sides, found)


@dataclass(frozen=True)
class _Sides:
    """What torch's kernel made of a node's operands, the ``expected``, and ONNX Runtime of the same, the ``value``."""

    replay: Replay
    node: fx.Node
    expected: torch.Tensor
    value: torch.Tensor
    rounds_between: bool = False

    @property
    def are_right_by_element(self) -> bool:
        return is_exact(self.node) and not self.replay.is_chain and self.replay.between is None

    @functools.cached_property
    def allowed(self) -> float:
        """What roundings of the result alone may add, as a share of its largest element."""
        return rounding_of_sum(self.expected.dtype, 1.0, terms(self.replay, self.node, self.expected))

    def small_elements(self) -> Iterator[torch.Tensor]:
        """Masks of elements far smaller than the largest, where an op works element by element, float64 is a measure
        for it, and what is in half precision is rounded once."""
        dtype, is_rounded = self.expected.dtype, self.replay.is_rounded or self.replay.between is not None
        is_fine = dtype == torch.float32 or (dtype in HALF and not self.rounds_between)
        if is_rounded or not is_fine or not works_by_element(self.replay, self.node):
            return iter(())
        inner = inner_magnitude(self.replay, self.node, self.expected.shape)
        return iter(()) if inner is None else small_elements(self.expected, self.value, self.allowed, inner)

    def but_for(self, hidden: torch.Tensor) -> LocalError:
        """The error of the elements that are not ``hidden``; its distance is theirs."""
        expected, value = (side.masked_fill(hidden, 0) for side in (self.expected, self.value))
        left = _Sides(self.replay, self.node, expected, value)
        gap, op = distance(left.expected, left.value), InFloat64(self.replay, self.node, hidden)
        found = left.against_float64(op, gap, float(gap.scale or 0), samples=1)
        found = found if found.is_noise else left.against_float64(op, gap, float(gap.scale or 0))
        return replace(found, among=~hidden)

    def against_float64(self, op: InFloat64, whole: Distance, scale: float, samples: int = 0) -> LocalError:
        """Both held against the op in float64; ``scale`` is the largest element, ``samples`` as of `sensitivity`."""
        exact, dtype = op.exact, self.expected.dtype
        if exact is None or exact.shape != self.expected.shape:
            return LocalError(whole, rounding_of(dtype, scale), is_noise=False)
        torch_error, onnx_error = deviation(exact, self.expected), deviation(exact, self.value)
        is_rounded = torch_error > 0 or dtype == torch.float64  # what is only taken, as by a gather, is not
        many = terms(self.replay, self.node, exact) if is_rounded else 1
        floor = rounding_of_sum(dtype, scale, many) + sensitivity(op, exact, dtype, many, samples)
        floor += growth(many) * underflow(op) if is_rounded else 0.0
        is_same = whole.max_abs is not None and whole.max_abs <= floor
        torch_may = max(
            _TORCH_MAY * floor, error_of_coarse_operands(op, dtype) * scale, error_of_sums_in_half(op, dtype)
        )
        torch_departs = torch_error > torch_may and not is_same
        floor += 2 * min(torch_error, torch_may)
        is_right = is_same or onnx_error <= floor
        floor = torch_may if is_right and torch_departs else floor
        return LocalError(whole, floor, is_right and not torch_departs, torch_departs, torch_error, onnx_error)


def _of_finding(sides: _Sides, whole: Distance) -> LocalError:
    """What a distance is that has no number, or is more than one: where NaN and inf stand on one side, float64 tells
    which one that is, unless a rounding of the operands decides it."""
    expected, value = sides.expected, sides.value
    error = LocalError(whole, 0.0, whole.equal)
    is_alike = expected.shape == value.shape and expected.dtype == value.dtype and expected.is_floating_point()
    if whole.equal or not is_alike:
        return error
    op = InFloat64(sides.replay, sides.node, None)
    exact = op.exact
    if exact is None or exact.shape != expected.shape:
        return error
    hidden = overflows_by_chance(op, expected.dtype)
    if hidden is not None and has_same_extremes(*(side.masked_fill(hidden, 0) for side in (expected, value))):
        return _but_for_wild_elements(sides, sides.but_for(hidden), hidden)
    torch_error, onnx_error = (
        deviation(exact, side) if has_same_extremes(exact, side) else math.inf for side in (expected, value)
    )
    departs = torch_error == math.inf and onnx_error < math.inf
    return replace(error, torch_departs=departs, torch_vs_float64=torch_error, onnx_vs_float64=onnx_error)


def _of_floats(sides: _Sides, whole: Distance) -> LocalError:
    """Of two floating tensors, each as a whole, unless its op is right element by element."""
    expected, value = sides.expected, sides.value
    scale, gap = _scale_and_gap(sides, whole)
    floor = rounding_of(expected.dtype, scale)
    by_element = sides.are_right_by_element
    if not gap or (gap <= floor and not by_element):
        return LocalError(whole, floor, is_noise=True)
    hidden = right_elements(expected, value) if by_element else extremes_of_both(expected, value)
    if hidden is not None:
        return sides.but_for(hidden)
    if by_element:
        return LocalError(whole, floor, is_noise=True)
    return sides.against_float64(InFloat64(sides.replay, sides.node, None), whole, scale)


def _scale_and_gap(sides: _Sides, whole: Distance) -> tuple[float, Number]:
    """The largest |element|, and the largest |expected - value|, but for what stands for infinity on both sides."""
    if whole.scale is not None and not may_be_extreme(whole.scale, sides.expected.dtype):
        return float(whole.scale), whole.max_abs or 0
    if whole.equal:
        return scale_but_for_extremes(sides.expected), 0
    return but_for_extremes(sides.expected, sides.value)


def _of_parts(sides: _Sides, found: LocalError) -> LocalError:
    """The error of a part for which the others are no measure, if it is more than noise; else ``found``, of all."""
    for part in small_parts(sides.expected, sides.value, sides.allowed):
        of_part = sides.but_for(~part)
        if not of_part.is_noise:
            return of_part
    for part in narrow_parts(sides.expected, sides.value, FAR_BEYOND * sides.allowed):
        of_part = sides.but_for(~part)
        if not (of_part.is_noise or of_part.torch_departs or of_part.torch_vs_float64 is None):
            return of_part
    for part in sides.small_elements():
        of_part = sides.but_for(~part)
        if not (of_part.is_noise or of_part.torch_departs):  # torch rounds 1 - x to half precision in `logit`, say
            return of_part
    masks = masks_of_both(sides.expected, sides.value, float(found.distance.scale or 0))
    beside = found if masks is None else sides.but_for(masks)
    return found if beside.torch_vs_float64 is None else _but_for_wild_elements(sides, beside, masks)


def _but_for_wild_elements(sides: _Sides, found: LocalError, hidden: torch.Tensor | None) -> LocalError:
    """``found``, but for what is ``hidden``, unless it is noise only by what roundings move elsewhere in the tensor."""
    left = found
    while left.is_noise and left.torch_vs_float64 is not None:
        if left.noise_floor <= LOOSE * sides.allowed * float(left.distance.scale or 0):
            break
        wild = wild_elements(InFloat64(sides.replay, sides.node, hidden))
        if wild is None:
            break
        hidden = wild if hidden is None else hidden | wild
        left = sides.but_for(hidden)
    return found if left.is_noise else left
