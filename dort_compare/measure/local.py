"""Local error: what the ONNX nodes of one op add, fed torch's operands."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch
from torch import fx

from dort_compare.dtypes import HALF
from dort_compare.measure.blocks import blocks
from dort_compare.measure.edge import is_on_the_edge
from dort_compare.measure.exact import is_exact, right_elements
from dort_compare.measure.floor import MANY, coarsest, growth, rounding, rounding_of, rounding_of_sum, smallest_normal
from dort_compare.measure.metrics import BLOCK, Distance, Number, deviation, distance
from dort_compare.measure.shake import shake
from dort_compare.measure.small_parts import small_parts
from dort_compare.measure.terms import terms
from dort_compare.measure.ties import is_a_tie
from dort_compare.trace import Replay

_CASTS = {torch.ops.aten._to_copy.default, torch.ops.prims.convert_element_type.default}
_EXTREME = 0.25
"""Of the dtype's largest number; from here on it stands for infinity, as masks do, and is no measure for the others."""
_SHAKEN = 8.0
"""How much more a right kernel may err than its result moves where every operand moves by one rounding."""
_SHAKES = 8
"""How often, at most, the operands of a result of few elements are moved: by chance it may not move with them once."""
_TORCH_MAY = 8.0
"""So many floors torch's own kernel may err before it is no measure any more: some add up in half precision."""


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
    if not expected.is_floating_point():
        is_open = (
            whole.equal or is_a_tie(replay, node, expected, value) or is_on_the_edge(replay, node, expected, value)
        )
        return LocalError(whole, 0.0, is_open)
    found = _of_floats(replay, node, expected, value, whole)
    if not found.is_noise or whole.equal or _is_right_by_element(replay, node):
        return found
    allowed = rounding_of_sum(expected.dtype, 1.0, terms(replay, node, expected))
    for part in small_parts(expected, value, allowed):
        of_part = _of_what_is_left(_Exact(replay, node, ~part), expected, value)
        if not of_part.is_noise:
            return of_part
    return found


def _of_floats(
    replay: Replay, node: fx.Node, expected: torch.Tensor, value: torch.Tensor, whole: Distance
) -> LocalError:
    """Of two floating tensors, each as a whole, unless its op is right element by element."""
    is_large = whole.scale is None or whole.scale >= _EXTREME * torch.finfo(expected.dtype).max
    scale, gap = but_for_extremes(expected, value) if is_large else (float(whole.scale or 0), whole.max_abs or 0)
    floor = rounding_of(expected.dtype, scale)
    by_element = _is_right_by_element(replay, node)
    if not gap or (gap <= floor and not by_element):
        return LocalError(whole, floor, is_noise=True)
    hidden = right_elements(expected, value) if by_element else extremes_of_both(expected, value)
    if by_element and hidden is None:
        return LocalError(whole, floor, is_noise=True)
    if hidden is None:
        return _against_float64(_Exact(replay, node, None), expected, value, whole, scale)
    return _of_what_is_left(_Exact(replay, node, hidden), expected, value)


def _is_right_by_element(replay: Replay, node: fx.Node) -> bool:
    return is_exact(node) and not replay.is_chain


def _of_what_is_left(of: _Exact, expected: torch.Tensor, value: torch.Tensor) -> LocalError:
    """The error of the elements that are not hidden; its distance is theirs."""
    assert of.hidden is not None
    expected, value = expected.masked_fill(of.hidden, 0), value.masked_fill(of.hidden, 0)
    left = distance(expected, value)
    found = _against_float64(replace(of, samples=1), expected, value, left, float(left.scale or 0))
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
        (deviation(exact, side) or 0.0) if has_same_extremes(exact, side) else math.inf for side in (expected, value)
    )
    departs = torch_error == math.inf and onnx_error < math.inf
    return replace(error, torch_departs=departs, torch_vs_float64=torch_error, onnx_vs_float64=onnx_error)


def has_same_extremes(exact: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether NaN and the infinities stand where rounding float64's result puts them, to within a few roundings."""
    limit, few = torch.finfo(value.dtype).max, 1 + 4 * torch.finfo(value.dtype).eps
    for _, (true, found) in blocks([exact, value], BLOCK):
        if not torch.equal(true.isnan(), found.isnan()):
            return False
        has_overflown = found.isinf() & ~((true.abs() * few >= limit) & (true.sign() == found.sign()))
        if (has_overflown | (found.isfinite() & (true.abs() > limit * few))).any():
            return False
    return True


def but_for_extremes(expected: torch.Tensor, value: torch.Tensor) -> tuple[float, Number]:
    """The largest |element|, and the largest |expected - value|, but for what is extreme in both.

    Block by block: masks are added to the largest values of all.
    """
    scale, gap = 0.0, 0.0
    for _, (one, other) in blocks([expected, value], BLOCK):
        extreme = extremes_of_both(one, other)
        pair = (one, other) if extreme is None else (one.masked_fill(extreme, 0), other.masked_fill(extreme, 0))
        found = distance(*pair)
        scale, gap = max(scale, found.scale or 0), max(gap, found.max_abs or 0)
    return scale, gap


@dataclass(frozen=True)
class _Exact:
    """An op in float64, with zeros in its result at the ``hidden`` elements, which are right on both sides.

    ``samples`` are to show what roundings move; 0 for as many as it takes.
    """

    replay: Replay
    node: fx.Node
    hidden: torch.Tensor | None
    samples: int = 0

    def value(self, change: Callable[[torch.Tensor], torch.Tensor] | None = None) -> torch.Tensor | None:
        return self._shown(self.replay.value(self.node, in_float64=True, change=change))

    def by_definition(self, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor | None:
        return self._shown(self.replay.by_definition(self.node, change))

    def _shown(self, result: torch.Tensor | None) -> torch.Tensor | None:
        if result is None or self.hidden is None or result.shape != self.hidden.shape:
            return result
        return result.masked_fill(self.hidden, 0)


def _against_float64(
    of: _Exact, expected: torch.Tensor, value: torch.Tensor, whole: Distance, scale: float
) -> LocalError:
    exact = of.value()
    if exact is None or exact.shape != expected.shape:
        return LocalError(whole, rounding_of(expected.dtype, scale), is_noise=False)
    torch_error, onnx_error = (deviation(exact, side) or 0.0 for side in (expected, value))
    is_rounded = torch_error > 0 or expected.dtype == torch.float64  # what is only taken, as by a gather, is not
    many = terms(of.replay, of.node, exact) if is_rounded else 1
    floor = rounding_of_sum(expected.dtype, scale, many) + _sensitivity(of, exact, expected.dtype, many)
    floor += growth(many) * _underflow(of) if is_rounded else 0.0
    torch_may = max(_TORCH_MAY * floor, _of_operands(of, expected.dtype) * scale)
    torch_departs = torch_error > torch_may
    floor += 2 * min(torch_error, torch_may)
    is_noise = onnx_error <= floor and not torch_departs
    return LocalError(whole, floor, is_noise, torch_departs, torch_error, onnx_error)


def _sensitivity(of: _Exact, exact: torch.Tensor, dtype: torch.dtype, many: int) -> float:
    """What roundings inside a kernel may add, told by how far the exact result moves as its operands do.

    Eight times a rounding to float32, in which kernels compute at least, and more where they may add up so ``many``
    terms; where the result has a finer ``dtype`` than an operand, twice a rounding to that one's: fused attention
    rounds its scores. So does every chain of ops that torch rounds in between. And by how far it moves as each result
    does that the op goes through by its definition, and that may cancel: 1 - y * y, in the gradient of tanh; that alone
    for one op that works element by element.
    """
    inside = _SHAKEN * growth(many) * _moved_inside(of, exact)
    if _is_one_element_by_element(of):
        return inside
    moved = max(inside, _SHAKEN * growth(many) * _moved(of, exact, torch.float32))
    coarse = coarsest(list(of.replay.dtypes()))
    if coarse is None or (torch.finfo(coarse).eps <= torch.finfo(dtype).eps and not of.replay.is_chain):
        return moved
    return max(moved, 2 * _moved(of, exact, coarse))


def _underflow(of: _Exact) -> float:
    """What a kernel may lose that goes through numbers below the smallest normal one, float32's for half precision.

    It is told by what may still multiply them: the largest operand, but for what is a mask. Nothing for one op that
    works element by element.

    Some kernels take such numbers for zero, as AVX-512's products of bfloat16 do.
    """
    if _is_one_element_by_element(of):
        return 0.0
    coarse = coarsest(list(of.replay.dtypes())) or torch.float32
    return smallest_normal(coarse) * max(1.0, of.replay.magnitude(math.sqrt(torch.finfo(torch.float32).max)))


def _of_operands(of: _Exact, dtype: torch.dtype) -> float:
    """What torch's own kernel may err where the result has a finer ``dtype`` than an operand, as a share of its scale.

    A unit roundoff of that operand's, if it is of half precision: what works on it need not compute finer on the way.
    Fused attention on the CPU approximates the exponential to some 15 bits, however small the scores are.
    """
    coarse = coarsest(list(of.replay.dtypes()))
    if coarse not in HALF or _is_one_element_by_element(of) or torch.finfo(coarse).eps <= torch.finfo(dtype).eps:
        return 0.0
    return torch.finfo(coarse).eps / 2


def _is_one_element_by_element(of: _Exact) -> bool:
    return _works_element_by_element(of.node.target) and not of.replay.is_chain


def _works_element_by_element(target: object) -> bool:
    return target in _CASTS or (isinstance(target, torch._ops.OpOverload) and torch.Tag.pointwise in target.tags)


def _moved(of: _Exact, exact: torch.Tensor, dtype: torch.dtype) -> float:
    """How far the exact result moves where every operand does by one rounding of ``dtype``, or of its own finer one.

    The most of several times where the result has few elements.
    """
    shaken = _shaken(dtype, torch.Generator().manual_seed(0))
    return _furthest(exact, (of.value(shaken) for _ in range(_times(of, exact))))


def _moved_inside(of: _Exact, exact: torch.Tensor) -> float:
    """How far the exact result moves where every result that its definition goes through does by a rounding to float32,
    or of its own finer dtype. The most of several times where the result has few elements."""
    if of.replay.is_chain:
        return 0.0
    generator = torch.Generator().manual_seed(0)
    computed_in = torch.promote_types(coarsest(list(of.replay.dtypes())) or torch.float32, torch.float32)
    shaken = functools.partial(shake, precision=computed_in, generator=generator)
    return _furthest(exact, (of.by_definition(shaken) for _ in range(_times(of, exact))))


def _times(of: _Exact, exact: torch.Tensor) -> int:
    """How many samples show what roundings move: one of many elements, more of few, or of few rows, as one rounding may
    move a whole row: that of the sum which attention's gradient subtracts."""
    if of.samples:
        return of.samples
    if of.hidden is None or not exact.ndim:
        return min(math.ceil(MANY / max(exact.numel(), 1)), _SHAKES)
    left = ~of.hidden.reshape(-1, exact.shape[-1])
    elements, rows = max(int(left.sum()), 1), max(int(left.any(-1).sum()), 1)
    return min(max(math.ceil(MANY / elements), math.ceil(_SHAKES / rows)), _SHAKES)


def _furthest(exact: torch.Tensor, results: Iterable[torch.Tensor | None]) -> float:
    return max(deviation(exact, r) or 0.0 if r is not None and r.shape == exact.shape else 0.0 for r in results)


def _shaken(dtype: torch.dtype, generator: torch.Generator) -> Callable[[torch.Tensor], torch.Tensor]:
    """Moves every element up or down at random, by one rounding of ``dtype`` or of float64 where that is its own."""

    def moved(value: torch.Tensor) -> torch.Tensor:
        return shake(value, torch.float64 if value.dtype == torch.float64 else dtype, generator)

    return moved


def extremes_of_both(expected: torch.Tensor, value: torch.Tensor) -> torch.Tensor | None:
    """Where both are beyond the limit and equal to within rounding; None where they are nowhere."""
    extreme = expected.abs() >= _EXTREME * torch.finfo(expected.dtype).max
    if not extreme.any():
        return None
    same = extreme & (expected == value)
    if torch.equal(same, extreme):
        return same
    gap = (expected.double() - value.double()).abs()
    return same | (extreme & (gap <= rounding(expected.dtype) * expected.double().abs()))
