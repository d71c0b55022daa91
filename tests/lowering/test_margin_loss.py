"""The multi-label margin loss, which torch decomposes into another than its kernel computes."""

from __future__ import annotations

import torch
from every_pair import every_pair
from torch import Tensor
from torch.nn import functional as F

from dort_compare import DebugBackend

TARGETS = {
    "no label": [[-1] * 4] * 3,
    "every label": [[2, 0, 3, 1], [0, 1, 2, 3], [3, 2, 1, 0]],
    "labels behind the end": [[3, -1, 1, 2], [1, 2, -1, 0], [-1, 0, 1, 2]],
    "a label twice": [[0, 0, -1, -1], [3, 1, 3, -1], [2, 2, 2, 2]],
}


@every_pair(rows=(3, None), labels=TARGETS, reduction=("none", "mean", "sum"))
def test_loss_and_gradient_are_torchs(rows: int | None, labels: str, reduction: str) -> None:
    torch.manual_seed(0)
    target = torch.tensor(TARGETS[labels])[slice(rows) if rows else 0]
    x = torch.randn(target.shape, dtype=torch.float64)

    def both(loss: object, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        leaf = x.detach().to(dtype, copy=True).requires_grad_()
        value = loss(leaf, target, reduction=reduction)  # type: ignore[operator]
        value.backward(torch.ones_like(value))
        assert leaf.grad is not None
        return value.detach(), leaf.grad

    torch._dynamo.reset()
    compiled = torch.compile(F.multilabel_margin_loss, backend=DebugBackend(fallback=False), dynamic=False)
    exact = tuple(tensor.float() for tensor in both(F.multilabel_margin_loss, torch.float64))
    torch.testing.assert_close(both(compiled, torch.float32), exact)


def test_the_exporter_of_torch_takes_other_ops_as_before() -> None:
    """Once it has listed torch's composite ops, the loss must not become one while a graph is traced."""
    torch.export.export(torch.nn.Tanh(), (torch.ones(3),)).run_decompositions()
    torch._dynamo.reset()
    compiled = torch.compile(torch.sigmoid, backend=DebugBackend(exporter="torch", fallback=False))
    torch.testing.assert_close(compiled(torch.ones(3)), torch.ones(3).sigmoid())


def test_the_loss_is_right_where_autograd_is_off() -> None:
    torch._dynamo.reset()
    x, target = torch.randn(3, 4), torch.tensor(TARGETS["labels behind the end"])
    compiled = torch.compile(F.multilabel_margin_loss, backend=DebugBackend(fallback=False))
    with torch.inference_mode():
        torch.testing.assert_close(compiled(x, target), F.multilabel_margin_loss(x, target))
