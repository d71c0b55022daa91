"""The multi-label margin loss in ATen ops, in place of torch's decomposition.

That one counts the label 0 for every place behind the last label of a row, where torch's kernels count nothing: a wrong
loss for every target that holds a -1.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch.nn import _reduction as reductions

_OP = torch.ops.aten.multilabel_margin_loss_forward.default


@contextmanager
def right_margin_loss() -> Iterator[None]:
    """Traces the loss as its kernel computes it: torch decomposes it before autograd, where it asks no table."""
    with patch.dict(_OP.py_kernels, {DispatchKey.Autograd: multilabel_margin_loss_forward}):
        _OP._dispatch_cache.clear()
        try:
            yield
        finally:
            _OP._dispatch_cache.clear()


def multilabel_margin_loss_forward(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """multilabel_margin_loss_forward(Tensor self, Tensor target, int reduction) -> (Tensor output, Tensor is_target)

    The labels y of a row of C numbers x are those before the first negative one; its loss is the sum of
    max(0, 1 - x[y] + x[c]) / C over the labels y and the classes c that are none.
    """
    rows, labels = torch.atleast_2d(x), torch.atleast_2d(target)
    classes = torch.arange(rows.shape[1], device=x.device)
    given = (labels >= 0).to(torch.int64).cumprod(1).to(torch.bool)
    is_target = ((labels[:, :, None] == classes) & given[:, :, None]).any(1)
    of_labels = rows.gather(1, torch.where(given, labels, 0))
    margins = (1 - of_labels[:, :, None] + rows[:, None]).clamp_min(0)
    losses = torch.where(given[:, :, None] & ~is_target[:, None], margins, 0).sum((1, 2)) / rows.shape[1]
    flags = is_target.to(x.dtype).view_as(target)
    if reduction == reductions.get_enum("none"):
        return losses.reshape(target.shape[:-1]), flags
    return (losses.mean() if reduction == reductions.get_enum("mean") else losses.sum()), flags
