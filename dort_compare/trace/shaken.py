"""Monte Carlo arithmetic: a graph in which every result that had to be rounded is rounded up or down by chance."""

from __future__ import annotations

import functools
import zlib
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from dort_compare.dtypes import HALF, in_parts, is_floating_tensor
from dort_compare.fx_graph import is_pointwise
from dort_compare.problems import raise_if_short
from dort_compare.randomness import draws
from dort_compare.trace.chance import Chance
from dort_compare.trace.definition import by_definition
from dort_compare.trace.exact_call import ExactCall, Held
from dort_compare.trace.float64 import REFUSALS, call_in_float64
from dort_compare.trace.ties import called_in_order, is_unsorted, sorted_dim
from dort_compare.trace.watched import See, Watched
from dort_compare.views import moves_nothing

_REORDERED = 8
"""Roundings that sums in another order may differ by, where they are added up in the dtype of the result."""
_DIGIT = 0.1
_NORMS = {
    torch.ops.aten.native_batch_norm.default,
    torch.ops.aten._native_batch_norm_legit.default,
    torch.ops.aten._native_batch_norm_legit.no_stats,
    torch.ops.aten._native_batch_norm_legit_functional.default,
    torch.ops.aten.native_group_norm.default,
    torch.ops.aten.native_layer_norm.default,
}
_SHARES = (1.0, 1 / 16)
"""How many of the results move, from sample to sample: few roundings, like those of other kernels, stay near what was
computed and so near its thresholds, many show how far errors grow."""


def shaken(seed: int, roundings: float = 1.0) -> functools.partial[Any]:
    """A ``run_watched`` that shakes, the same way for the same seed.

    An op rounds the same operands the same way, as kernels do: what a backward graph computes again is what forward has
    computed, and a maximum saved there is still one of the elements.

    Every op computes in float64 on its operands. A result that its own dtype cannot hold is rounded to the nearest and
    moved by one rounding up or down by chance; what is exact stays exact, so that masks, maxima and what is only moved
    hold still (D. S. Parker, Monte Carlo Arithmetic, 1997: random rounding of what is inexact). What was rounded to an
    integer moves only towards the exact result: 0 and 1 may bound what the next op takes. What float64 itself cannot
    hold shows where the operands are rounded to float32: what float32 does not hold of their result is taken for
    inexact, but for integers. An op that combines elements in float32 or float64 moves by up to eight roundings, for
    other kernels add up in another order; its operands move by one first, for what is left where terms cancel is as
    coarse as they are. Those of a gradient, which often nearly cancels, move only where less than a digit of it is
    left, as of that of attention to one token. A normalization rounds its mean and variance, too. Sorts meet equal
    elements in an order by chance, and what is chosen unsorted comes in one. An op that works element by element rounds
    what its definition goes through, too: 1 + tanh(x), in gelu, is nearly 0 where x is -4. Random ops draw what they
    draw unshaken.

    ``roundings`` is how many times its size every rounding is, but of those to half precision, large as they are.
    """
    share = _SHARES[seed % len(_SHARES)]
    results, before = (Chance(each, share, roundings) for each in (2 * seed, 2 * seed + 1))
    return functools.partial(_run, results, before)


def _run(results: Chance, before: Chance, graph_module: fx.GraphModule, arguments: list[Any], see: See) -> Any:
    return _Shaken(graph_module, see, results, before).run_on(arguments)


class _Shaken(Watched):
    """``results`` of ops move by chance, and what lies ``before`` them: operands, and results within an op."""

    def __init__(self, graph_module: fx.GraphModule, see: See, results: Chance, before: Chance) -> None:
        super().__init__(graph_module, see)
        self.chance, self.chance_before = results, before

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        number = _number(target, (args, kwargs))
        for chance in (self.chance, self.chance_before):
            chance.begin(number)
        dim = sorted_dim(self.node)
        if dim is not None:
            found = called_in_order(self._order(args[0], dim), target, dim, args, kwargs)
            return self._in_any_order(found, dim) if is_unsorted(self.node) else found
        if not _rounds(self.node):
            return super().call_function(target, args, kwargs)
        try:
            call = ExactCall.of(self.node, target, args, kwargs)
        except REFUSALS as problem:
            raise_if_short(problem)
            return super().call_function(target, args, kwargs)
        width = 1 if is_pointwise(target) else _REORDERED
        again = self._normalized if target in _NORMS else self._cancelled if width > 1 else self._rounded_inside
        moved = [self._rounded(*each, width) for each in zip(again(call), call.traced, call.held, strict=True)]
        return pytree.tree_unflatten(moved, call.form)

    def _order(self, x: torch.Tensor, dim: int) -> torch.Tensor:
        """One by chance, in which the elements along a dimension are met."""
        length = x.shape[dim] if x.ndim else 1
        return torch.randperm(length, generator=self.chance.generator, device="cpu").to(x.device)

    def _in_any_order(self, found: tuple[torch.Tensor, ...], dim: int) -> tuple[torch.Tensor, ...]:
        """What was chosen unsorted, in an order by chance."""
        like = found[0]
        places = torch.rand(like.shape, generator=self.chance.generator, device="cpu").to(like.device)
        return tuple(each.gather(dim, places.argsort(dim)) if each.ndim else each for each in found)

    def _cancelled(self, call: ExactCall) -> list[Any]:
        """The results of an op that combines elements, with what the roundings of its operands make of them: of
        gradients where less than a digit is left, of others also where they have to be rounded. They stay where other
        pivots are chosen then or none is found, and zeros that are made of integers."""
        operands = (call.args, call.kwargs)
        try:
            again = pytree.tree_leaves(call_in_float64(call.target, *pytree.tree_map(self._jolted, operands)))
        except REFUSALS as problem:
            raise_if_short(problem)
            return call.results
        if call.target.overloadpacket.__name__.endswith("_backward"):
            return [*map(_where_cancelled, call.results, again)]
        if any(_chooses(*pair) for pair in zip(call.results, again, strict=True)):
            return call.results
        return call.where_inexact(again, of_integers=all(map(_is_integer, pytree.tree_leaves(operands))))

    def _normalized(self, call: ExactCall) -> list[Any]:
        """The results of a normalization, with what its operands' roundings make of them, and those of the mean and
        the variance, which move all that is normalized by them alike."""
        both = zip(self._cancelled(call), self._rounded_inside(call), call.results, strict=True)
        return [torch.where(x.isfinite(), a + (b - x), a) if is_floating_tensor(x) else x for a, b, x in both]

    def _rounded_inside(self, call: ExactCall) -> list[Any]:
        """The results of an op that works element by element, with what the roundings of all that its definition goes
        through make of them."""
        try:
            inside = self._in_float64 if call.is_float64 else self._in_float32
            again = by_definition(call.target, call.args, call.kwargs, inside)
        except REFUSALS as problem:
            raise_if_short(problem)
            return call.results
        return call.results if again is None else call.where_inexact(pytree.tree_leaves(again), of_integers=True)

    def _in_float32(self, exact: torch.Tensor) -> torch.Tensor:
        """A result within an op, rounded and moved as one of an op, in float64."""
        return self.chance_before.moved(exact, torch.float32, exact == exact.float(), 1).double()

    def _in_float64(self, exact: torch.Tensor) -> torch.Tensor:
        """A result within an op that computes in float64, moved by one rounding to that."""
        return self.chance_before.jolted(exact, torch.float64)

    def _jolted(self, operand: Any) -> Any:
        """An operand in float64, moved by one rounding to float32, or to float64 if it is in that."""
        if not is_floating_tensor(operand):
            return operand
        return self.chance_before.jolted(operand, operand.dtype if operand.dtype == torch.float64 else torch.float32)

    def _rounded(self, exact: Any, traced: Any, held: Held, width: int) -> Any:
        """``exact`` in the dtype that was traced, what that cannot hold moved by up to ``width`` roundings."""
        if held is None:
            return exact
        if traced.dtype != exact.dtype:
            held = exact == exact.to(traced.dtype)  # what was rounded inside is held by now
        return self.chance.moved(exact, traced.dtype, held, 1 if traced.dtype in HALF else width)


def _number(target: Any, operands: Any) -> int:
    """One for calls of an op on the same tensors, and another for all others."""
    tensors = [each for each in pytree.tree_leaves(operands) if isinstance(each, torch.Tensor)]
    return hash((zlib.crc32(str(target).encode()), *map(_digest, tensors)))


def _digest(tensor: torch.Tensor) -> int:
    if tensor.layout != torch.strided or not tensor.numel():
        return hash(tuple(tensor.shape))
    plain = in_parts(tensor.detach()).resolve_neg().cpu().clone(memory_format=torch.contiguous_format)
    return hash((zlib.crc32(plain.view(-1).view(torch.uint8).numpy()), *tensor.shape))


def _where_cancelled(exact: Any, again: Any) -> Any:
    """``again`` where ``exact`` is zero, or roundings of the operands leave less than a digit of it."""
    if not isinstance(exact, torch.Tensor) or not exact.is_floating_point():
        return exact
    return torch.where((exact == 0) | ((again - exact).abs() > _DIGIT * exact.abs()), again, exact)


def _is_integer(operand: Any) -> bool:
    if not is_floating_tensor(operand):
        return True
    wide = operand.double()  # torch rounds nothing of 8 bits
    return torch.equal(wide, wide.round())


def _chooses(exact: Any, again: Any) -> bool:
    """Whether results that are not floating are others."""
    return isinstance(exact, torch.Tensor) and not exact.is_floating_point() and not torch.equal(exact, again)


def _rounds(node: fx.Node) -> bool:
    """Whether the node is an operation of torch on values, whose float64 result may be put in the place of its own."""
    target = node.target
    if (
        not isinstance(target, torch._ops.OpOverload)
        or target.namespace not in ("aten", "prims")
        or moves_nothing(node)
    ):
        return False
    if draws(target) or target._schema.is_mutable:
        return False
    values = [value for value in pytree.tree_leaves(node.meta.get("val")) if isinstance(value, torch.Tensor)]
    return any(value.is_floating_point() for value in values)
