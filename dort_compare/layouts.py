"""How tensors lay in memory, and what sizes were, when torch traced a graph."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any

import torch

_LARGE = 2**16
"""What stands for a size that only a run knows, plus the number of its symbol."""


def layout_of(value: torch.Tensor) -> tuple[int, ...] | None:
    """The order of the dimensions in memory, from the outermost to the innermost; None for a tensor that is not dense.

    It is the order of the shape where that fits. Symbolic sizes stand for what they were when torch traced the graph,
    for asking them would add guards; those that only a run knows for large numbers, each another.
    """
    shape, stride = ([*map(_stand_in, sizes)] for sizes in (value.shape, value.stride()))
    plain = list(range(value.ndim))
    for order in (plain, sorted(plain, key=stride.__getitem__, reverse=True)):
        if is_contiguous([shape[d] for d in order], [stride[d] for d in order]):
            return tuple(order)
    return None


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The order of dimensions that undoes one."""
    return tuple(order.index(dim) for dim in range(len(order)))


def is_contiguous(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether strides are those of elements that lie one after the other in memory, in the order of the shape."""
    dense = list(itertools.accumulate((max(n, 1) for n in reversed(shape)), operator.mul, initial=1))[-2::-1]
    return all(n == 1 or have == want for n, have, want in zip(shape, stride, dense, strict=True))


def _stand_in(size: int | torch.SymInt) -> int:
    hint = _hint(size)
    if isinstance(size, int) or hint is not None:
        return int(hint)
    known, expression = size.node.shape_env.backed_var_to_val, size.node.expr
    unknown = expression.free_symbols - known.keys()
    large = {symbol: _LARGE + int("".join(filter(str.isdigit, symbol.name))) for symbol in unknown}
    return int(expression.subs({**known, **large}))


def hints(sizes: Sequence[int | torch.SymInt]) -> list[int] | None:
    """What sizes were when torch traced the graph; None where it knew one of them in a run alone."""
    hints = [*map(_hint, sizes)]
    return None if None in hints else hints


def elements(tensor: torch.Tensor) -> int | None:
    """How many elements a tensor had when torch traced the graph; None where that showed in a run alone."""
    sizes = hints(tensor.shape)
    return None if sizes is None else math.prod(sizes)


def _hint(size: int | torch.SymInt) -> Any:
    return size if isinstance(size, int) else size.node.hint
