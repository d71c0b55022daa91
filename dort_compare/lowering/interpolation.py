"""Interpolation kept whole as it is traced, where all sizes are known.

torch takes it apart before autograd, into one indexing for each neighbour of a pixel, of which the gradients are sums
over indices that repeat: in ONNX Runtime several times as slow as the sums over known windows of ``ops.interpolation``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._decomp import decomposition_table
from torch._decomp.decompositions import upsample_compute_output_size

from dort_compare.lowering.before_autograd import traced_by
from dort_compare.lowering.ops.interpolation import KINDS

aten = torch.ops.aten


@contextmanager
def whole_interpolation() -> Iterator[None]:
    """Traces interpolation of floating images of known sizes as the ops that have kernels and gradients in torch."""
    with ExitStack() as stack:
        for packet in (getattr(aten, name) for name in KINDS):
            apart = packet.vec.py_kernels.get(DispatchKey.Autograd)
            if apart is not None:  # as in torch up to 2.13
                stack.enter_context(traced_by(packet.vec, functools.partial(_by_factors, packet.default, apart)))
                stack.enter_context(traced_by(packet.default, functools.partial(_by_sizes, packet.default)))
        yield


def _by_factors(
    op: torch._ops.OpOverload, apart: Callable[..., Tensor], x: Tensor, output_size: Sequence[int] | None, *given: Any
) -> Tensor:
    """What the overload ``vec`` computes; ``given``: whether corners are aligned, for some, and factors."""
    *align_corners, factors = given
    sizes = upsample_compute_output_size(x.size(), output_size, factors)
    if not _is_known(x, sizes):
        return apart(x, output_size, *given)
    return _whole(op, x, sizes, *align_corners, *(factors or [None] * len(sizes)))


def _by_sizes(op: torch._ops.OpOverload, x: Tensor, output_size: Sequence[int], *given: Any, **named: Any) -> Tensor:
    """What the overload ``default`` computes."""
    compute = functools.partial(_whole, op) if _is_known(x, output_size) else decomposition_table[op]
    return compute(x, output_size, *given, **named)


def _is_known(x: Tensor, sizes: Sequence[int]) -> bool:
    """Whether torch traces the op for such an image, and its gradient, for which no size may be symbolic."""
    is_known = all(isinstance(size, int) for size in (*x.shape, *sizes))
    return is_known and x.numel() != 0 and x.is_floating_point()


def _whole(op: torch._ops.OpOverload, *given: Any, **named: Any) -> Tensor:
    with traced_by(op, None):
        return op(*given, **named)
