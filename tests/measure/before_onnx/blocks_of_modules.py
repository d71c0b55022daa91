"""Models that several tests of what departs before ONNX take."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dort_compare import Report


class Block(nn.Module):
    """A residual block whose activation is a module of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 12)
        self.act = nn.ELU()
        self.down = nn.Linear(12, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.act(self.up(self.norm(x))))


def assert_clean(report: Report) -> None:
    assert report.verdict == "agree", str(report)
    assert {row.status for row in report.modules} <= {"ok", "unaligned"}


def assert_named(report: Report, module: str) -> None:
    """Of all that was found there is one cause, before ONNX, in this module."""
    assert report.verdict == "diverge"
    assert {row.status for row in report.rows} == {"ok"}
    (cause,) = report.causes
    assert (cause.phase, cause.module) == ("eager", module), cause
    assert cause.reason.startswith("departs before ONNX: ")
    assert "is noise" in cause.reason


def wrong_elu(x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    return torch.where(x > 0, x, 1.02 * (x.exp() - 1))


def wrong_elu_backward(
    grad: Tensor, alpha: float, scale: float, input_scale: float, is_result: bool, x: Tensor
) -> Tensor:
    return torch.where(x > 0, grad, 1.1 * grad * (x + 1 if is_result else x.exp()))


class Averaging(nn.Module):
    """Keeps a running mean, in place or as a new tensor, ``wrong`` times as large where it is compiled."""

    def __init__(self, wrong: float, is_in_place: bool) -> None:
        super().__init__()
        self.wrong, self.is_in_place = wrong, is_in_place
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        found = x.detach().mean(0).to(self.mean) * (self.wrong if torch.compiler.is_compiling() else 1.0)
        self.mean = self.mean.lerp_(found, 0.5) if self.is_in_place else self.mean.lerp(found, 0.5)
        return x * 2
