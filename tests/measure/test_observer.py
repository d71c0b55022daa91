"""Whether exposing values changed the outputs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from dort_compare import DebugBackend
from dort_compare.compiled import graph_run
from dort_compare.measure import observer as observer_room
from dort_compare.measure.graph_rows import graph_rows
from dort_compare.measure.observer import Observed, Observer, settle
from dort_compare.trace.four_executions import Executed
from dort_compare.trace.lockstep import Step
from dort_compare.trace.shaken import shaken

X = torch.linspace(1, 2, 100)
NUMBERS = 1 + torch.rand(64, generator=torch.Generator().manual_seed(0))
Function = Callable[[torch.Tensor], torch.Tensor]


def seen(shipped: torch.Tensor, precision: torch.dtype = torch.float32, own: torch.Tensor = X):
    observer = Observer("forward", 3, "lowered", {"y": shipped})
    step = Step(None, own, own.double(), {})  # type: ignore[arg-type]
    observer.see(Executed(step, "other", own), precision, None)
    assert observer.seen == []
    observer.see(Executed(step, "y", own), precision, None)
    (found,) = observer.seen
    return found


def test_the_same_bits_are_the_same():
    found = seen(X.clone())
    assert (found.phase, found.graph, found.output, found.execution) == ("forward", 3, "y", "lowered")
    assert found.ok
    assert found.to_json()["distance"]["equal"] is True


@pytest.mark.parametrize(("shipped", "asked"), [(X.clone(), False), (X * (1 + 1e-6), True)])
def test_float64_is_asked_where_something_differs(
    shipped: torch.Tensor, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[bool] = []
    whole = observer_room.inherited_error

    def error(*arguments: object) -> object:
        given.append(len(arguments) > 4)
        return whole(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(observer_room, "inherited_error", error)
    assert seen(shipped).ok
    assert any(given) is asked


@pytest.mark.parametrize(("again", "ok"), [(X, True), (X + 1, False)])
def test_a_departure_is_one_when_the_program_has_run_again(again: torch.Tensor, ok: bool) -> None:
    """What it computed before may have been written since, by what torch does not see."""
    runs = []

    def run() -> dict[str, torch.Tensor]:
        runs.append("again")
        return {"x": again, "y": again}

    observer = Observer("forward", 3, "lowered", {"x": X - 1, "y": X - 1, "z": X}, run)
    for name in ("z", "x", "y"):
        observer.see(Executed(Step(None, X, X.double(), {}), name, X), torch.float32, None)  # type: ignore[arg-type]
    assert [found.ok for found in observer.seen] == [True, ok, ok]
    assert observer.seen[1].distance.equal is ok
    assert runs == ["again"]


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
    observer.see(Executed(Step(None, zeros, zeros.double(), {}), "y", own), torch.float32, None)  # type: ignore[arg-type]
    assert observer.seen[0].ok is ok


def cancelled(x: torch.Tensor) -> torch.Tensor:
    """Amplifies the rounding of its first step ten thousand times."""
    return (x.exp() - x.exp().round(decimals=3)) * 1e4 + 1


def settled(function: Function, x: torch.Tensor, shipped: Function) -> Observed:
    """What is seen of a program that computes ``shipped`` in the place of ``function``."""
    backend = DebugBackend(providers=["cpu"])
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        torch.compile(function, backend=backend)(x)
    (graph,) = backend.graphs
    run = graph_run(graph)
    observer = Observer("inference", 0, "lowered", {graph.onnx_model.graph.output[0].name: shipped(x)})
    list(graph_rows(run, watches=(observer.see,)))
    assert not observer.seen[0].ok
    settle(observer, run)
    return observer.seen[0]


@pytest.mark.parametrize(("further", "ok"), [(0.0, True), (3e-1, False)])
def test_what_right_results_scatter_as_far_as_is_noise(further: float, ok: bool) -> None:
    def another(x: torch.Tensor) -> torch.Tensor:
        return (x.exp() * (1 + 4 * 2.0**-23) - x.exp().round(decimals=3)) * 1e4 + 1 + further

    assert settled(cancelled, NUMBERS, another).ok is ok


def in_halves(x: torch.Tensor) -> torch.Tensor:
    """Amplifies the roundings of one half alone."""
    return torch.cat([cancelled(x[:32]), x[32:].exp()])


@pytest.mark.parametrize("further", [0.0, 1e-2])
def test_roundings_that_one_half_amplifies_are_no_measure_for_the_other(further: float) -> None:
    def another(x: torch.Tensor) -> torch.Tensor:
        left = (x[:32].exp() * (1 + 4 * 2.0**-23) - x[:32].exp().round(decimals=3)) * 1e4 + 1
        return torch.cat([left, x[32:].exp() + further])

    assert settled(in_halves, NUMBERS, another).ok is (not further)


def test_the_log_says_how_many_runs_scatter_is_known_of(monkeypatch, said_by) -> None:
    def failing(seed: int, roundings: float) -> Callable[..., None]:
        def run(*_: object) -> None:
            raise RuntimeError("no such size")

        return run if seed else shaken(seed, roundings)

    monkeypatch.setattr(observer_room, "shaken", failing)
    assert not settled(cancelled, NUMBERS, lambda x: cancelled(x) + 1).ok
    told = "inference graph 0: scatter is known of 1 runs, the next one fails: RuntimeError: no such size"
    assert said_by("dort_compare.measure") == [told]


@pytest.mark.parametrize(
    ("function", "shipped"),
    [
        (
            lambda x: torch.stack([x * x, x.pow(2)]).argmax(0),
            lambda x: torch.stack([x * x, x.pow(2) * (1 + 2.0**-23)]).argmax(0),
        ),
        (lambda x: (x.exp() * 1e6).round().long(), lambda x: (x.exp() * (1 + 2.0**-23) * 1e6).round().long()),
        (lambda x: x * x > x.pow(2), lambda x: x * x * (1 + 2.0**-23) > x.pow(2)),
    ],
    ids=["indices", "integers", "booleans"],
)
def test_integers_may_turn_over_where_roundings_turn_them(function: Function, shipped: Function) -> None:
    assert settled(function, NUMBERS, shipped).ok


@pytest.mark.parametrize(
    ("function", "shipped"),
    [
        (lambda x: x.exp().argsort(), lambda x: x.exp().argsort().flip(0)),
        (lambda x: (x.exp() * 1e6).round().long(), lambda x: torch.zeros(len(x), dtype=torch.int64)),
        (lambda x: x.exp() > 4 + 1e-7, lambda x: x.exp() < 4),
        (lambda x: x * x > x.pow(2) * (1 + torch.arange(64).clamp(max=1)), lambda x: x > 0),
        (lambda x: (x.exp() * 1e5).round().long(), lambda x: torch.zeros(len(x), dtype=torch.int64)),
        (lambda x: ((x * x) - x.pow(2)).sqrt() + x, lambda x: x.masked_fill(x > 1.5, torch.nan)),
        (lambda x: x.exp()[(x.exp() * 1e5).sin() > 0], lambda x: x.exp()[(x.exp() * 1e5).sin() > 0] + 100),
    ],
    ids=["indices", "far integers", "booleans", "more than turn over", "integers", "nan", "sizes"],
)
def test_what_no_scatter_excuses(function: Function, shipped: Function) -> None:
    found = settled(function, NUMBERS, shipped)
    assert not found.ok
    assert found.noise_floor < torch.inf
