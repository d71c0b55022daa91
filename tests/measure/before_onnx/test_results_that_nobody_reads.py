"""Results and views that nobody reads, or that are made anew outside of the graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from blocks_of_modules import Block, assert_clean, assert_named, wrong_elu_backward
from torch import Tensor, nn

from dort_compare import compare

aten = torch.ops.aten


class Scores(nn.Module):
    """Returns scores that nobody reads, and leaves a key of their shape in a cache; the graph has the scores in another
    shape where ``is_flat``."""

    def __init__(self, is_flat: bool) -> None:
        super().__init__()
        self.key = nn.Linear(4, 4)
        self.is_flat = is_flat

    def forward(self, x: Tensor, cache: list[Tensor]) -> tuple[Tensor, Tensor]:
        key = (self.key(x) * 2).view(1, 4, 4)
        cache.append(key)
        if self.is_flat:
            scores = (x @ key[0].mT).softmax(-1)
            return scores @ key[0], scores.view(1, 4, 4)
        scores = (x @ key.mT).softmax(-1)
        return (scores @ key)[0], scores


class Cached(nn.Module):
    def __init__(self, is_flat: bool) -> None:
        super().__init__()
        self.first, self.second = Scores(is_flat), Scores(is_flat)

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        cache: list[Tensor] = []
        for layer in (self.first, self.second):
            x, _ = layer(x, cache)
        return x, cache


@pytest.mark.parametrize("is_flat", [False, True])
def test_results_that_nobody_reads_are_not_held_against_others_of_their_shape(is_flat: bool) -> None:
    torch.manual_seed(0)
    call = (torch.randn(4, 4),)
    report = compare(Cached(is_flat), call, backward=True, loss=lambda results: results[0].square().sum())
    assert_clean(report)
    unread = [row.status for row in report.modules if row.leaf == "[1]"]
    assert unread == ["ok"] * (2 if is_flat else 4)


class Assigned(nn.Module):
    """Returns what it mixes, and weights that nobody reads, of the same shape: the graph does not compute them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.linear(x), (x @ x.mT).softmax(-1)


class Assigning(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.assign, self.norm = Assigned(), nn.LayerNorm(4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mixed, weights = self.assign(x)
        mixed += x
        return mixed + self.norm(mixed), weights


class Grouping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.assigning = Assigning()

    def forward(self, x: Tensor) -> Tensor:
        return self.assigning(x)[0]


def test_a_result_that_nobody_reads_is_not_held_against_one_that_eager_overwrites() -> None:
    assert_clean(compare(Grouping(), (torch.randn(2, 4, 4),), backward=True))


class Pooled(nn.Module):
    """Returns a sequence, which is a view of a product, and a view of it, as encoders return what they pool."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        sequence = self.linear(x)
        return sequence, sequence[:, 0]


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = Pooled(), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        sequence, pooled = self.inner(x)
        return sequence, pooled, self.head(pooled)


def test_gradients_by_views_that_are_made_anew_outside_are_not_held_against_their_part_in_the_graph() -> None:
    """The model returns the views: autograd goes back through them outside of the backward graph, and through the head
    within it."""
    assert_clean(compare(Encoder(), (torch.randn(2, 5, 8),), backward=True))


def test_a_wrong_gradient_is_named_beside_views_that_are_made_anew_outside(decompose: Any) -> None:
    decompose(aten.elu_backward.default, wrong_elu_backward)
    assert_named(compare(nn.Sequential(Block(), Encoder()), (torch.randn(2, 5, 8),), backward=True), "0.act")


class Logged(nn.Module):
    """Returns what a module in the middle made too, for a log: without a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.act, self.last = nn.Linear(8, 8), nn.ELU(), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.first(x)
        return self.last(self.act(hidden)), hidden.detach()


def test_a_view_that_is_returned_without_a_gradient_hides_no_departure(decompose: Any) -> None:
    decompose(aten.elu_backward.default, wrong_elu_backward)
    assert_named(compare(Logged(), (torch.randn(2, 5, 8),), backward=True), "act")
