"""An op in float64, and how far its result moves where roundings move what it reads and goes through."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import fx

from dort_compare.dtypes import HALF, coarsest
from dort_compare.fx_graph import call_of, is_pointwise
from dort_compare.measure.noise.exact import is_exact
from dort_compare.measure.noise.floor import MANY, growth, rounding, smallest_normal
from dort_compare.measure.noise.shake import furthest, furthest_by_element, shake
from dort_compare.measure.noise.small_parts import FAR
from dort_compare.measure.noise.sums import SUMS, sums_of_rounded
from dort_compare.trace import Replay
from dort_compare.trace.definition import definition
from dort_compare.trace.replay import Change
from dort_compare.trace.spacing import spacing

aten, prims = torch.ops.aten, torch.ops.prims

_UNTAGGED = {
    *SUMS,
    *(aten.floor_divide.default, aten.floor_divide.Scalar),
    *(prims.floor.default, prims.ceil.default, prims.round.default, prims.fmod.default, prims.remainder.default),
    *(aten.hardtanh_backward.default, aten.hardsigmoid_backward.default, aten.hardswish_backward.default),
    *(aten.hardshrink_backward.default, aten.softshrink_backward.default, aten.leaky_relu_backward.default),
    aten.fake_quantize_per_tensor_affine_cachemask.default,
    aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default,
    aten.fake_quantize_per_channel_affine_cachemask.default,
}
"""Ops that work element by element, of which torch does not say so: ``rsub``, and those that jump at a threshold, which
all kernels take the same numbers to."""
_ADD_IN_HALF = {
    getattr(aten, name).default
    for name in (
        *("index_put", "_unsafe_index_put", "embedding_dense_backward", "_embedding_bag_backward"),
        *("unfold_backward", "col2im"),
        *("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward"),
        *("adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward"),
        *("avg_pool2d_backward", "avg_pool3d_backward"),
        *("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward"),
        *("reflection_pad1d_backward", "reflection_pad2d_backward", "reflection_pad3d_backward"),
        *("replication_pad1d_backward", "replication_pad2d_backward", "replication_pad3d_backward"),
    )
}
"""On the CPU. index_add, scatter_add and upsampling's gradients add up in float32, and round once."""
_SHAKEN = 8.0
"""By how many roundings every operand moves, so that the result moves as far as a right kernel may err."""
_BETWEEN = 2.0
"""The same of roundings of what is handed on, which ONNX nodes do make, or the ops of a chain in torch."""
_SHAKES = 8
"""How often, at most, the operands of a result of few elements are moved: by chance it may not move with them once."""


@dataclass(frozen=True)
class InFloat64:
    """An op in float64, with zeros in its result at the ``hidden`` elements, which are right on both sides."""

    replay: Replay
    node: fx.Node
    hidden: torch.Tensor | None

    @functools.cached_property
    def exact(self) -> torch.Tensor | None:
        """The result; None where torch has no such op."""
        return self._shown(self.replay.value(self.node, in_float64=True))

    def moved(self, change: Change) -> torch.Tensor | None:
        """The result where ``change`` has been applied to the operands."""
        return self._shown(self.replay.value(self.node, in_float64=True, change=change))

    def moved_inside(self, change: Change) -> torch.Tensor | None:
        """The result where ``change`` has been applied to what the op goes through by its definition."""
        return self._shown(self.replay.by_definition(self.node, change))

    def of_rounded(self, dtype: torch.dtype) -> Iterable[torch.Tensor | None]:
        """The results of a sum in half precision where what it reads is rounded to that first."""
        return map(self._shown, sums_of_rounded(self.replay, self.node, dtype))

    def _shown(self, result: torch.Tensor | None) -> torch.Tensor | None:
        if result is None or self.hidden is None or result.shape != self.hidden.shape:
            return result
        return result.masked_fill(self.hidden, 0)


def sensitivity(op: InFloat64, exact: torch.Tensor, dtype: torch.dtype, many: int, samples: int = 0) -> float:
    """What roundings inside a kernel may add, told by how far the exact result moves as its operands do.

    By eight roundings to float32, in which kernels compute at least, and more where they may add up so ``many`` terms;
    of a chain of ops, which torch rounds in between, by two roundings to their half-precision dtype. And by how far it
    moves as each result does that the op goes through by its definition, and that may cancel: 1 - y * y, in the
    gradient of tanh; that alone for one op that works element by element or chooses elements, and what roundings of its
    numbers move a sum in half precision. At a threshold a result jumps as far by eight as by one, not eight times
    (`_at_once_or_one`).

    Where ONNX nodes round to a coarser dtype on their way (`Replay.between`), it is what some such roundings of the
    operands move, and of what the op goes through by its definition.

    Each is the most of so many ``samples``, or of as many as show it for sure.
    """
    samples = samples or _samples(op, exact)
    if op.replay.between is not None:
        outside = _moved(op, exact, op.replay.between, samples, _BETWEEN)
        return outside + _moved_inside(op, exact, samples, _BETWEEN)
    inside = _moved_inside(op, exact, samples, _SHAKEN * growth(many))
    if works_by_element(op.replay, op.node):
        return inside + furthest(exact, op.of_rounded(dtype))
    moved = max(inside, _moved(op, exact, torch.float32, samples, _SHAKEN * growth(many)))
    coarse = coarsest(op.replay.dtypes()) if op.replay.is_chain else None
    return moved if coarse is None else max(moved, _moved(op, exact, coarse, samples, _BETWEEN))


def wild_elements(op: InFloat64) -> torch.Tensor | None:
    """Where roundings move the result far more than elsewhere, so that what they move there is no measure for the rest;
    None where they move all of it about as far.

    A row of attention that a mask hides whole is one: its scores are -1e9, a rounding of which is 64, and its
    probabilities jump from equal ones to a single one. Numbers that lie at a threshold are others: 8 // 2 is 3 where 8
    moves down, and 7 // 2 is 3 in any case.
    """
    exact = op.exact
    if exact is None or not exact.numel():
        return None
    coarse = op.replay.between or (coarsest(op.replay.dtypes()) if op.replay.is_chain else None)
    outside = _shaken(coarse or torch.float32)
    inside = _shaken_inside(op)
    results = (op.moved(outside) for _ in range(2 * _SHAKES))
    inner = () if op.replay.is_chain else (op.moved_inside(inside) for _ in range(2 * _SHAKES))
    moved = furthest_by_element(exact, itertools.chain(results, inner))
    wild = moved * FAR >= moved.max()
    if moved.max() == 0 or wild.all():
        return None
    return wild if (moved[~wild] > 0).any() or (exact[~wild] != 0).any() else None


def overflows_by_chance(op: InFloat64, dtype: torch.dtype) -> torch.Tensor | None:
    """Where the result is beyond the range of ``dtype``, or NaN, or is not, as eight roundings move one of the operands
    of what combines elements; None where that is nowhere.

    The gradient of fused attention reads the logarithm of a sum of exponentials, rounded to float32: where scores are
    1e10 that is off by hundreds, which the exponential takes to infinity or to 0.
    """
    if works_by_element(op.replay, op.node):  # acos has no number just beyond 1, but one of 1
        return None
    places = itertools.count()
    results = [op.moved(lambda value: value.double() + 0 * next(places))]
    one_of = range(next(places))
    results += [op.moved(_one_moved(*which)) for which in itertools.product(one_of, (-_SHAKEN, _SHAKEN))]
    within = [result.abs() <= torch.finfo(dtype).max for result in results if result is not None]
    if len({result.shape for result in within}) != 1:
        return None
    is_open = torch.stack(within).any(0) & ~torch.stack(within).all(0)
    return is_open if is_open.any() else None


def underflow(op: InFloat64) -> float:
    """What a kernel may lose that goes through numbers below the smallest normal one, float32's for half precision.

    It is told by what may still multiply them: the largest operand, but for what is a mask.

    Some kernels take such numbers for zero, as AVX-512's products of bfloat16 do. One op that works element by element
    only rounds them, if it goes through any: `mish` multiplies one by -100.
    """
    is_single = works_by_element(op.replay, op.node)
    if is_single and definition(op.node.target) is None:
        return 0.0
    coarse = coarsest(op.replay.dtypes()) or torch.float32
    lost = smallest_normal(coarse) * max(1.0, op.replay.magnitude(math.sqrt(torch.finfo(torch.float32).max)))
    return rounding(torch.float32) * lost if is_single else lost


def error_of_coarse_operands(op: InFloat64, dtype: torch.dtype) -> float:
    """What torch's own kernel may err where the result has a finer ``dtype`` than an operand, as a share of its scale.

    A unit roundoff of that operand's, if it is of half precision: what works on it need not compute finer on the way.
    Fused attention on the CPU approximates the exponential to some 15 bits, however small the scores are.
    """
    coarse = coarsest(op.replay.dtypes())
    if coarse not in HALF or works_by_element(op.replay, op.node) or torch.finfo(coarse).eps <= torch.finfo(dtype).eps:
        return 0.0
    return torch.finfo(coarse).eps / 2


def error_of_sums_in_half(op: InFloat64, dtype: torch.dtype) -> float:
    """What torch's own kernel may err where each term is added to a result of half precision and the sum is rounded.

    A unit roundoff of the largest operand for every term: sums of terms that cancel by chance grow with the square root
    of their number, and so do the errors of rounding each. How many there are is what the op makes of ones.
    """
    if dtype not in HALF or op.node.target not in _ADD_IN_HALF or op.replay.is_chain:
        return 0.0
    counts = op.moved(torch.ones_like)
    if counts is None or not counts.numel():
        return 0.0
    return float(counts.max()) * torch.finfo(dtype).eps / 2 * op.replay.magnitude(torch.inf)


def works_by_element(replay: Replay, node: fx.Node) -> bool:
    """Whether one op computes each element of its result of those in the same place; not a chain of ops."""
    target = call_of(node).target
    return not replay.is_chain and (is_pointwise(target) or target in _UNTAGGED or is_exact(node))


def _moved(op: InFloat64, exact: torch.Tensor, dtype: torch.dtype, samples: int, roundings: float) -> float:
    """How far the exact result moves where every operand does by so many ``roundings`` of ``dtype``, or of its own
    finer one."""
    return _at_once_or_one(functools.partial(_shaken, dtype), op.moved, exact, samples, roundings)


def _moved_inside(op: InFloat64, exact: torch.Tensor, samples: int, roundings: float) -> float:
    """How far the exact result moves where every result that its definition goes through does by so many ``roundings``
    to float32, or of its own finer dtype."""
    if op.replay.is_chain:
        return 0.0
    return _at_once_or_one(functools.partial(_shaken_inside, op), op.moved_inside, exact, samples, roundings)


def _at_once_or_one(
    shaken: Callable[[float], Change],
    move: Callable[[Change], torch.Tensor | None],
    exact: torch.Tensor,
    samples: int,
    roundings: float,
) -> float:
    """How far a result moves by so many roundings at once, or so many times as far as by one, whichever is less: over
    a threshold one jump is all there is, and next to a singular matrix many at once are out of proportion."""

    def moved_by(roundings: float) -> float:
        change = shaken(roundings)
        return furthest(exact, (move(change) for _ in range(samples)))

    at_once = moved_by(roundings)
    return min(at_once, roundings * moved_by(1.0)) if at_once else 0.0


def _shaken_inside(op: InFloat64, roundings: float = 1.0) -> Change:
    """Moves by so many roundings to float32, to the finer dtype that an op computes in, or to what its nodes round
    to."""
    finest = torch.promote_types(coarsest(op.replay.dtypes()) or torch.float32, torch.float32)
    computed_in = op.replay.between or finest
    generator = torch.Generator().manual_seed(0)
    return functools.partial(shake, precision=computed_in, generator=generator, roundings=roundings)


def _one_moved(place: int, roundings: float) -> Change:
    """Moves all elements of the one operand that is read in this place, by so many roundings to float32."""
    places = itertools.count()

    def moved(value: torch.Tensor) -> torch.Tensor:
        return value.double() + (roundings * spacing(value, torch.float32) if next(places) == place else 0.0)

    return moved


def _samples(op: InFloat64, exact: torch.Tensor) -> int:
    """How many samples show what roundings move: one of many elements, more of few. Beside hidden elements few may be
    left that move at all, or one rounding may move a whole row, as of the sum that attention's gradient subtracts."""
    return min(math.ceil(MANY / max(exact.numel(), 1)), _SHAKES) if op.hidden is None else _SHAKES


def _shaken(dtype: torch.dtype, roundings: float = 1.0) -> Change:
    """Moves every element up or down at random, by so many roundings of ``dtype``, or of float64 where that is its
    own."""
    generator = torch.Generator().manual_seed(0)

    def moved(value: torch.Tensor) -> torch.Tensor:
        return shake(value, torch.float64 if value.dtype == torch.float64 else dtype, generator, roundings)

    return moved
