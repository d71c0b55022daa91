"""Dropout between recurrent layers, which torch's decomposition (2.13) leaves out: it compares the wrong way round."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._decomp import decompositions

Layers = Callable[..., tuple[Tensor, list[Any]]]


@contextmanager
def recurrent_dropout() -> Iterator[None]:
    """Within it recurrent layers are traced with the dropout that they have in training."""
    with patch.object(decompositions, "_rnn_helper", _with_dropout(decompositions._rnn_helper)):
        yield


def _with_dropout(original: Layers) -> Layers:
    def layers(
        x: Tensor,
        hidden: Sequence[Any],
        params: Sequence[Any],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
        layer: Callable[..., Any],
    ) -> tuple[Tensor, list[Any]]:
        """One layer after another, (steps, batch, features), each for itself a network without dropout."""
        each, finals = 2 if bidirectional else 1, []
        x = x.transpose(0, 1) if batch_first else x
        for i in range(num_layers):
            if i and train and dropout:
                x = torch.dropout(x, dropout, train=True)
            own = slice(i * each, (i + 1) * each)
            x, final = original(x, hidden[own], params[own], has_biases, 1, 0.0, train, bidirectional, False, layer)
            finals += final
        return (x.transpose(0, 1) if batch_first else x), finals

    return layers
