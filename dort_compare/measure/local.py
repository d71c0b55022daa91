"""Local error: what the ONNX nodes of one op add, fed torch's operands."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import fx

from dort_compare.measure.edge import is_on_the_edge
from dort_compare.measure.exact import is_exact, right_elements
from dort_compare.measure.extremes import (
    but_for_extremes,
    extremes_of_both,
    has_same_extremes,
    masks_of_both,
    may_be_extreme,
)
from dort_compare.measure.floor import growth, rounding_of, rounding_of_sum
from dort_compare.measure.metrics import Distance, deviation, distance
from dort_compare.measure.sensitivity import InFloat64, of_operands, sensitivity, underflow, wild_elements
from dort_compare.measure.small_parts import small_parts
from dort_compare.measure.terms import terms
from dort_compare.measure.ties import is_a_tie, is_another_order
from dort_compare.trace import Replay

_TORCH_MAY = 8.0
"""So many floors torch's own kernel may err before it is no measure any more: some add up in half precision."""

_LOOSE = 4.0
"""A floor of so many times what roundings of the result add is made by what they move."""


@dataclass(frozen=True)
class LocalError:
    """The distance of ONNX's value from torch's on the same operands, and what of it is noise.

    The distances of both from float64 on these operands are only known where torch's and ONNX's are not equal to
    within a few roundings; they are infinite for the side that has NaN or inf, or numbers, where float64 has not.
    ``torch_departs`` says that torch's own kernel errs by more than noise.
    """

    distance: Distance
    noise_floor: float
    is_noise: bool
    torch_departs: bool = False
    torch_vs_float64: float | None = None
    onnx_vs_float64: float | None = None


def local_error(
    replay: Replay, node: fx.Node, expected: torch.Tensor, value: torch.Tensor, whole: Distance
) -> LocalError:
    """The local error of ``value``, which ONNX Runtime computed for ``node`` where torch's kernel got ``expected``.

    ``whole`` is the distance of the two.

    Noise is a few unit roundoffs of the largest element (`rounding_of`), or of each element by itself where that is all
    that an op may err (`is_exact`). Beyond them both are held against float64
    on the same operands: noise is then an error of at most those roundings, eight times what a rounding of each of
    the operands moves, for an op that combines elements and so may cancel (an error that is backward stable;
    Higham, Accuracy and Stability of Numerical Algorithms, 1.5), or of each result on its way, both more where dozens
    of elements make one (`growth`), what may be lost below the smallest normal number on the way, and twice the error
    of torch's own kernel. Rows far smaller than the largest are judged once more, by their own size (`small_parts`).
    Where torch's errs by more than eight times all this, and by more than its operands hold, it is torch that departs.
    NaN, inf, dtypes and shapes that differ are never noise. Integers and booleans may differ only where a rounding of
    half-precision operands decides: ONNX Runtime computes those in float32; and where equal elements are sorted, whose
    order torch leaves open.
    """
    if whole.finding or whole.max_abs is None:
        return _of_finding(replay, node, expected, value, whole)
    if not whole.equal and is_another_order(node, expected, value):
        return LocalError(Distance.of_equal(whole.numel, whole.scale or 0), 0.0, is_noise=True)
    if not expected.is_floating_point():
        is_open = (
            whole.equal or is_a_tie(replay, node, expected, value) or is_on_the_edge(replay, node, expected, value)
        )
        return LocalError(whole, 0.0, is_open)
    found = _of_floats(replay, node, expected, value, whole)
    if not found.is_noise or whole.equal or _is_right_by_element(replay, node):
        return found
    return _of_parts(replay, node, expected, value, found)


def _of_parts(
    replay: Replay, node: fx.Node, expected: torch.Tensor, value: torch.Tensor, found: LocalError
) -> LocalError:
    """The error of a part for which the others are no measure, if it is more than noise; else ``found``, of all."""
    allowed = rounding_of_sum(expected.dtype, 1.0, terms(replay, node, expected))
    for part in small_parts(expected, value, allowed):
        of_part = _of_what_is_left(InFloat64(replay, node, ~part), expected, value)
        if not of_part.is_noise:
            return of_part
    masks = masks_of_both(expected, value, float(found.distance.scale or 0))
    beside = found if masks is None else _of_what_is_left(InFloat64(replay, node, masks), expected, value)
    if beside.torch_vs_float64 is None:
        return found
    return _but_for_wild_elements(replay, node, expected, value, beside, masks, allowed)


def _but_for_wild_elements(
    replay: Replay,
    node: fx.Node,
    expected: torch.Tensor,
    value: torch.Tensor,
    found: LocalError,
    hidden: torch.Tensor | None,
    allowed: float,
) -> LocalError:
    """``found``, unless it is noise by what roundings move elsewhere in the tensor alone."""
    left = found
    while left.is_noise and left.torch_vs_float64 is not None:
        if left.noise_floor <= _LOOSE * allowed * float(left.distance.scale or 0):
            break
        wild = wild_elements(InFloat64(replay, node, hidden), expected.dtype)
        if wild is None:
            break
        hidden = wild if hidden is None else hidden | wild
        left = _of_what_is_left(InFloat64(replay, node, hidden), expected, value)
    return found if left.is_noise else left


def _of_floats(
    replay: Replay, node: fx.Node, expected: torch.Tensor, value: torch.Tensor, whole: Distance
) -> LocalError:
    """Of two floating tensors, each as a whole, unless its op is right element by element."""
    is_large = whole.scale is None or may_be_extreme(whole.scale, expected.dtype)
    scale, gap = but_for_extremes(expected, value) if is_large else (float(whole.scale or 0), whole.max_abs or 0)
    floor = rounding_of(expected.dtype, scale)
    by_element = _is_right_by_element(replay, node)
    if not gap or (gap <= floor and not by_element):
        return LocalError(whole, floor, is_noise=True)
    hidden = right_elements(expected, value) if by_element else extremes_of_both(expected, value)
    if by_element and hidden is None:
        return LocalError(whole, floor, is_noise=True)
    if hidden is None:
        return _against_float64(InFloat64(replay, node, None), expected, value, whole, scale)
    return _of_what_is_left(InFloat64(replay, node, hidden), expected, value)


def _is_right_by_element(replay: Replay, node: fx.Node) -> bool:
    return is_exact(node) and not replay.is_chain


def _of_what_is_left(of: InFloat64, expected: torch.Tensor, value: torch.Tensor) -> LocalError:
    """The error of the elements that are not hidden; its distance is theirs."""
    assert of.hidden is not None
    expected, value = expected.masked_fill(of.hidden, 0), value.masked_fill(of.hidden, 0)
    left = distance(expected, value)
    found = _against_float64(of, expected, value, left, float(left.scale or 0), samples=1)
    return found if found.is_noise else _against_float64(of, expected, value, left, float(left.scale or 0))


def _of_finding(
    replay: Replay, node: fx.Node, expected: torch.Tensor, value: torch.Tensor, whole: Distance
) -> LocalError:
    """What a distance is that has no number, or is more than one: where NaN and inf stand on one side, float64 tells
    which one that is."""
    error = LocalError(whole, 0.0, whole.equal)
    if (
        whole.equal
        or expected.shape != value.shape
        or not (expected.dtype == value.dtype and expected.is_floating_point())
    ):
        return error
    exact = replay.value(node, in_float64=True)
    if exact is None or exact.shape != expected.shape:
        return error
    torch_error, onnx_error = (
        deviation(exact, side) if has_same_extremes(exact, side) else math.inf for side in (expected, value)
    )
    departs = torch_error == math.inf and onnx_error < math.inf
    return replace(error, torch_departs=departs, torch_vs_float64=torch_error, onnx_vs_float64=onnx_error)


def _against_float64(
    of: InFloat64, expected: torch.Tensor, value: torch.Tensor, whole: Distance, scale: float, samples: int = 0
) -> LocalError:
    exact = of.exact
    if exact is None or exact.shape != expected.shape:
        return LocalError(whole, rounding_of(expected.dtype, scale), is_noise=False)
    torch_error, onnx_error = (deviation(exact, side) for side in (expected, value))
    is_rounded = torch_error > 0 or expected.dtype == torch.float64  # what is only taken, as by a gather, is not
    many = terms(of.replay, of.node, exact) if is_rounded else 1
    floor = rounding_of_sum(expected.dtype, scale, many) + sensitivity(of, exact, expected.dtype, many, samples)
    floor += growth(many) * underflow(of) if is_rounded else 0.0
    torch_may = max(_TORCH_MAY * floor, of_operands(of, expected.dtype) * scale)
    torch_departs = torch_error > torch_may
    floor += 2 * min(torch_error, torch_may)
    is_noise = onnx_error <= floor and not torch_departs
    return LocalError(whole, floor, is_noise, torch_departs, torch_error, onnx_error)
