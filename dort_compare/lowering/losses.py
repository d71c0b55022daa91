"""Gradients of losses in ATen ops, in place of torch's decompositions (2.13).

Those divide by the number of elements where there are none, and lose what is left of 1 next to it and what is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._decomp.decompositions import pw_cast_for_opmath
from torch.nn import _reduction as reductions

aten = torch.ops.aten


def decompositions() -> Mapping[torch._ops.OperatorBase, Callable[..., Any]]:
    """By op: as torch's kernel computes it, or where that overflows, as in the soft margin loss, as float64 does."""
    return {
        aten.huber_loss_backward.default: pw_cast_for_opmath(huber_loss_backward),
        aten.mse_loss_backward.default: pw_cast_for_opmath(mse_loss_backward),
        aten.smooth_l1_loss_backward.default: pw_cast_for_opmath(smooth_l1_loss_backward),
        aten.soft_margin_loss_backward.default: pw_cast_for_opmath(soft_margin_loss_backward),
    }


def huber_loss_backward(grad_output: Tensor, x: Tensor, target: Tensor, reduction: int, delta: float) -> Tensor:
    """huber_loss_backward(Tensor grad_output, Tensor self, Tensor target, int reduction, float delta) -> Tensor"""
    gap = x - target
    return grad_output * _share(x, reduction) * torch.where(gap.abs() >= delta, gap.sign() * delta, gap)


def mse_loss_backward(grad_output: Tensor, x: Tensor, target: Tensor, reduction: int) -> Tensor:
    """mse_loss_backward(Tensor grad_output, Tensor self, Tensor target, int reduction) -> Tensor"""
    return 2 * _share(x, reduction) * (x - target) * grad_output


def smooth_l1_loss_backward(grad_output: Tensor, x: Tensor, target: Tensor, reduction: int, beta: float) -> Tensor:
    """smooth_l1_loss_backward(Tensor grad_output, Tensor self, Tensor target, int reduction, float beta) -> Tensor"""
    gap = x - target
    return grad_output * _share(x, reduction) * torch.where(gap.abs() >= beta, gap.sign(), gap / beta)


def soft_margin_loss_backward(grad_output: Tensor, x: Tensor, target: Tensor, reduction: int) -> Tensor:
    """soft_margin_loss_backward(Tensor grad_output, Tensor self, Tensor target, int reduction) -> Tensor"""
    return grad_output * _share(x, reduction) * -target * torch.sigmoid(-target * x)


def _share(x: Tensor, reduction: int) -> float:
    """Of the loss, an element's; any number where there is none."""
    return 1 / (x.numel() or 1) if reduction == reductions.get_enum("mean") else 1.0
