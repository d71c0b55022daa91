"""Interpolation kept whole as it is traced, where its sizes are known.

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
from torch._decomp.decompositions import upsample_compute_output_size
from torch.fx.experimental.symbolic_shapes import statically_known_true

from dort_compare.lowering.before_autograd import traced_by

aten = torch.ops.aten
_PACKETS = (
    aten.upsample_linear1d,
    aten.upsample_bilinear2d,
    aten.upsample_trilinear3d,
    aten.upsample_bicubic2d,
    *(aten.upsample_nearest1d, aten.upsample_nearest2d, aten.upsample_nearest3d),
    *(aten._upsample_nearest_exact1d, aten._upsample_nearest_exact2d, aten._upsample_nearest_exact3d),
)


@contextmanager
def whole_interpolation() -> Iterator[None]:
    """Traces interpolation of floating images of known sizes as the ops that have kernels and gradients in torch."""
    with ExitStack() as stack:
        for packet in _PACKETS:
            apart = packet.vec.py_kernels[DispatchKey.Autograd]
            stack.enter_context(traced_by(packet.vec, functools.partial(_whole, packet.default, apart)))
            stack.enter_context(traced_by(packet.default, None))
        yield


def _whole(
    op: torch._ops.OpOverload, apart: Callable[..., Tensor], x: Tensor, output_size: Sequence[int] | None, *given: Any
) -> Tensor:
    """What the overload ``vec`` computes; ``given`` may begin with whether corners are aligned, and ends with factors.

    torch refuses to trace some of the ops for an empty image.
    """
    *align_corners, factors = given
    sizes = upsample_compute_output_size(x.size(), output_size, factors)
    is_known = all(isinstance(size, int) for size in (*x.shape[2:], *sizes)) and statically_known_true(x.numel() != 0)
    if not is_known or not x.is_floating_point():
        return apart(x, output_size, *given)
    return op(x, sizes, *align_corners, *(factors or [None] * len(sizes)))
