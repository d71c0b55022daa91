"""What several tests of noise plant or compute."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from dort_compare.lowering import registered, registry


def plant(monkeypatch: pytest.MonkeyPatch, target: Any, factor: float) -> None:
    """Every result of ``target`` comes out scaled."""
    original = registered()[target]

    def wrong(op: Any, *args: Any, **kwargs: Any) -> Any:
        return op.cast(op.Mul(op.cast(original(op, *args, **kwargs), torch.float32), factor), op.result.dtype)

    monkeypatch.setitem(registry._TABLE, target, wrong)


def fused(x: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], attn_mask=mask[:, None])
