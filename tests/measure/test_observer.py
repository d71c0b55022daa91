"""Whether exposing values changed the outputs."""

from __future__ import annotations

import pytest
import torch

from dort_compare.measure.observer import Observer
from dort_compare.trace.executions import Executed
from dort_compare.trace.lockstep import Step

X = torch.linspace(1, 2, 100)


def seen(shipped: torch.Tensor, precision: torch.dtype = torch.float32, own: torch.Tensor = X):
    observer = Observer("forward", 3, "lowered", {"y": shipped})
    step = Step(None, own, own.double(), {})  # type: ignore[arg-type]
    observer.see(Executed(step, "other", own), precision)
    assert observer.seen == []
    observer.see(Executed(step, "y", own), precision)
    (found,) = observer.seen
    return found


def test_the_same_bits_are_the_same():
    found = seen(X.clone())
    assert (found.phase, found.graph, found.output, found.execution) == ("forward", 3, "y", "lowered")
    assert found.ok
    assert found.to_json()["distance"]["equal"] is True


@pytest.mark.parametrize(
    ("factor", "precision", "ok"),
    [(1 + 1e-6, torch.float32, True), (1 + 1e-3, torch.float32, False), (1 + 1e-3, torch.bfloat16, True)],
)
def test_noise_is_what_the_precision_of_the_graph_allows(factor, precision, ok):
    found = seen(X * factor, precision)
    assert not found.distance.equal
    assert found.ok is ok


@pytest.mark.parametrize("shipped", [X[:50], X.double(), X.masked_fill(X > 1.5, torch.nan)])
def test_shapes_dtypes_and_nan_are_never_noise(shipped):
    assert not seen(shipped).ok


def test_an_integer_must_be_the_same():
    numbers = torch.arange(4)
    assert seen(numbers.clone(), None, numbers).ok  # type: ignore[arg-type]
    assert not seen(numbers + 1, None, numbers).ok  # type: ignore[arg-type]


@pytest.mark.parametrize(("size", "ok"), [(1e-7, True), (1.0, False)])
def test_what_is_left_where_all_cancels_may_be_another_residue(size: float, ok: bool) -> None:
    observer = Observer("backward", 0, "lowered", {"y": 1.4 * size * X})
    zeros = torch.zeros(100)
    own = 1e-7 * X
    observer.see(Executed(Step(None, zeros, zeros.double(), {}), "y", own), torch.float32)  # type: ignore[arg-type]
    assert observer.seen[0].ok is ok
