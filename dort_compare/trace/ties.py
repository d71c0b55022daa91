"""Orders that torch leaves open: of equal elements in sorts, and of all that is chosen without being sorted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

aten = torch.ops.aten
_DIM_ARGUMENT: dict[Any, int] = {
    aten.sort.default: 1,
    aten.sort.stable: 1,
    aten.topk.default: 2,
    aten.kthvalue.default: 2,
    aten.median.dim: 1,
    aten.nanmedian.dim: 1,
    aten.mode.default: 1,
}
"""Where the dimension stands among the arguments of those that return values and, second, indices."""


def sorted_dim(node: fx.Node) -> int | None:
    """The dimension along which the indices that a call returns may change places; None for any other call."""
    place = _DIM_ARGUMENT.get(node.target)
    if place is None or node.kwargs.get("stable"):
        return None
    dim = _argument(node, "dim", place, -1)
    return dim if isinstance(dim, int) else None


def is_unsorted(node: fx.Node) -> bool:
    """Whether a call returns what it chooses in an order that torch leaves open: ``topk(..., sorted=False)``."""
    return node.target is aten.topk.default and not _argument(node, "sorted", 4, True)


def chooses_largest(node: fx.Node) -> bool:
    """Whether a ``topk`` chooses the largest elements, not the smallest."""
    return bool(_argument(node, "largest", 3, True))


def _argument(node: fx.Node, name: str, place: int, default: Any) -> Any:
    return node.kwargs.get(name, node.args[place] if len(node.args) > place else default)


def keeps_dim(node: fx.Node) -> bool:
    """Whether what the call returns has the dimension that it sorts along, whatever its arguments say."""
    return node.target in (aten.sort.default, aten.sort.stable, aten.topk.default)


def called_in_order(
    order: torch.Tensor, target: Any, dim: int, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, ...]:
    """``target(*args, **kwargs)`` as right as ever, with elements along ``dim`` met in an ``order``, a permutation."""
    values, indices = target(args[0].index_select(dim, order), *args[1:], **kwargs)
    return values, order[indices]
