"""The multi-label margin loss in ATen ops, in place of torch's decomposition.

That one counts the label 0 for every place behind the last label of a row, where torch's kernels count nothing: a wrong
loss for every target that holds a -1.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
from torch import Tensor
from torch.nn import _reduction as reductions

from dort_compare.lowering.before_autograd import traced_by

aten = torch.ops.aten


def right_margin_loss() -> AbstractContextManager[None]:
    """Traces the loss as its kernel computes it: torch decomposes it before autograd."""
    return traced_by(aten.multilabel_margin_loss_forward.default, multilabel_margin_loss_forward)


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
