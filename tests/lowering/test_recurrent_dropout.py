"""Recurrent layers drop between layers what eager drops, in training alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import dort_compare


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_layers_drop_what_eager_drops(kind: type[nn.RNNBase], bidirectional: bool) -> None:
    torch.manual_seed(0)
    layers = kind(4, 3, 3, dropout=0.5, bidirectional=bidirectional, batch_first=bidirectional)
    x = torch.randn(5, 2, 4)
    report = dort_compare.compare(layers, (x,), backward=True)
    assert report.verdict == "agree", str(report)
    assert report.fallbacks, "nothing was drawn"
    layers.eval()
    report = dort_compare.compare(layers, (x,), backward=True)
    assert report.verdict == "agree", str(report)
    assert not report.fallbacks
