"""A wrong decomposition is named by the module that it is of."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from blocks_of_modules import Block, assert_clean, assert_named, wrong_elu, wrong_elu_backward
from torch import Tensor, nn
from torch._decomp import decomposition_table
from torch.torch_version import TorchVersion

from dort_compare import compare
from dort_compare.backends import aot

aten = torch.ops.aten


def blocks() -> nn.Module:
    return nn.Sequential(Block(), Block())


@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_a_wrong_decomposition_is_named_by_its_module(decompose: Any, autocast: torch.dtype | None) -> None:
    decompose(aten.elu.default, wrong_elu if autocast is None else lambda x, *_: wrong_elu(x) * 1.2)
    report = compare(blocks(), (torch.randn(4, 8),), backward=True, autocast=autocast)
    assert_named(report, "0.act")
    departing = [row for row in report.modules if row.status == "diverges"]
    assert [(row.module, row.kind) for row in departing][:3] == [
        ("0.act", "output"),
        ("0.down", "output"),
        ("0", "output"),
    ]


def test_of_many_nodes_that_may_have_departed_the_first_and_last_are_named(decompose: Any) -> None:
    def long(x: Tensor, *_: Any) -> Tensor:
        for _step in range(20):
            x = x * 1.01
        return x

    decompose(aten.elu.default, long)
    report = compare(blocks(), (torch.randn(4, 8),))
    assert_named(report, "0.act")
    nodes = next(row for row in report.modules if row.status == "diverges").fx_nodes
    assert len(nodes) == 20
    assert report.causes[0].fx_node == " ".join(nodes)
    assert " ".join([*nodes[:3], "...", *nodes[-3:]]) in str(report)


def test_dropout_that_torch_loses_between_recurrent_layers_is_named() -> None:
    """AOTAutograd traces a GRU of two layers without the dropout between them."""
    report = compare(nn.GRU(8, 6, 2, dropout=0.3).train(), (torch.randn(5, 2, 8),))
    assert report.causes[0].phase == "eager"
    assert "the graph is further from float64" in report.causes[0].reason


def test_a_wrong_decomposition_of_a_gradient_is_named_by_its_module(decompose: Any) -> None:
    decompose(aten.elu_backward.default, wrong_elu_backward)
    report = compare(blocks(), (torch.randn(4, 8),), backward=True)
    assert_named(report, "1.act")
    assert {row.kind for row in report.modules if row.status == "diverges"} == {"gradient"}
    first = next(row for row in report.modules if row.status == "diverges")
    assert (first.module, first.cause) == ("1.up", "1.act")


def test_a_parameters_gradient_that_departs_alone_is_named_by_its_module(decompose: Any) -> None:
    def wrong(
        grad: Tensor, x: Tensor, shape: Any, mean: Tensor, rstd: Tensor, weight: Any, bias: Any, mask: Any
    ) -> Any:
        dx, dw, db = decomposition_table[aten.native_layer_norm_backward.default](
            grad, x, shape, mean, rstd, weight, bias, mask
        )
        return dx, dw * 1.1, db

    decompose(aten.native_layer_norm_backward.default, wrong)
    report = compare(blocks(), (torch.randn(4, 8),), backward=True)
    assert_named(report, "1.norm")
    assert report.causes[0].fx_node == "gradient 1.norm.weight"


class Margin(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 4)
        self.loss = nn.MultiLabelMarginLoss()

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return self.loss(self.head(x).tanh(), target)


@pytest.mark.skipif(TorchVersion(torch.__version__) >= (2, 14), reason="torch has mended it")
def test_a_wrong_decomposition_of_torchs_is_named(decompose: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    op = aten.multilabel_margin_loss_forward.default
    args = torch.randn(3, 4), torch.tensor([[3, -1, 1, 2], [1, 2, -1, 0], [-1, 0, 1, 2]])
    assert_clean(compare(Margin(), args, backward=True))
    monkeypatch.setattr(aot, "right_margin_loss", nullcontext)
    decompose(op, decomposition_table[op])
    assert_named(compare(Margin(), args, backward=True), "loss")
