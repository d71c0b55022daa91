"""Sums of two, of which little may be left but what was rounded before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

from dort_compare.dtypes import HALF
from dort_compare.trace import Replay
from dort_compare.trace.float64 import call_in_float64

aten = torch.ops.aten

_FROM_THE_SECOND = {aten.rsub.Tensor, aten.rsub.Scalar}
SUMS = {aten.add.Tensor, aten.add.Scalar, aten.sub.Tensor, aten.sub.Scalar, *_FROM_THE_SECOND}


def factor(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The factor ``alpha`` among the arguments of a sum."""
    return kwargs.get("alpha", args[2] if len(args) > 2 else 1)


def sums_of_rounded(replay: Replay, node: fx.Node, dtype: torch.dtype) -> Iterator[torch.Tensor]:
    """What a sum in half precision is in float64 where numbers and ``alpha`` are rounded to that first, and where the
    product with ``alpha`` is, too; nothing for other ops and dtypes.

    torch's kernels for CPUs do the former, and behind the last whole vector the latter.
    """
    arguments = replay.arguments(node) if dtype in HALF and node.target in SUMS and not replay.is_chain else None
    if arguments is None:
        return
    x, y = (_rounded(term, dtype) for term in arguments[0][:2])
    alpha = _rounded(factor(*arguments), dtype)
    for product_in in (torch.float64, dtype):
        if node.target in _FROM_THE_SECOND:
            terms = _rounded(alpha * x, product_in), y
        else:
            terms = x, _rounded(alpha * y, product_in)
        yield call_in_float64(node.target, terms, {})


def _rounded(term: Any, dtype: torch.dtype) -> Any:
    """A tensor or number with no more digits than ``dtype`` has, in float64."""
    if isinstance(term, torch.Tensor):
        return term.to(dtype).double()
    return torch.tensor(term, dtype=torch.float64).to(dtype).item()
