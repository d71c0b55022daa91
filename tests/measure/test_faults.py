"""Planted faults are blamed on the FX node that they were planted in, and nothing else is; see benchmarks/faults.py."""

from __future__ import annotations

import json
from dataclasses import astuple
from pathlib import Path

import fault_trials
import onnx
import pytest
import torch
import workers
from fault_clean import measure_clean
from fault_kinds import KINDS, faults_of
from fault_subjects import AUTOCAST, Subject, graph_runs
from fault_trials import CLEAR, Bench
from faults_page import is_reached, page
from planted import plant

NOT_IN_ATTENTION = {"scatter", "index", "epsilon"}
SMALL = Subject("attention", batch="1", seq="4")


@pytest.fixture(scope="module")
def benches() -> list[Bench]:
    with torch.random.fork_rng():
        return [Bench(run) for run in graph_runs(SMALL)]


def counted(bench: Bench, kind: str, most: int) -> list[dict]:
    return [trial for trial in bench.trials(kind, most) if trial.get("moved", 0) > CLEAR]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in NOT_IN_ATTENTION])
def test_a_fault_of_each_kind_is_blamed_and_nothing_else(benches: list[Bench], kind: str) -> None:
    trials = [trial for bench in benches for trial in counted(bench, kind, 1)]
    assert trials
    for trial in trials:
        assert trial["first"], trial
        assert trial["alone"], trial


def test_three_faults_at_once_are_named(benches: list[Bench]) -> None:
    for bench in benches:
        (trial,) = bench.triples(list(KINDS), 1)
        assert trial["alone"], trial


def test_every_kind_has_faults_somewhere(benches: list[Bench]) -> None:
    found = {kind for bench in benches for kind in KINDS for _ in faults_of(kind, bench.sites)}
    assert found == set(KINDS) - NOT_IN_ATTENTION


def test_a_fault_changes_one_node_and_leaves_the_model_alone(benches: list[Bench]) -> None:
    model = benches[0].run.onnx_model
    before = model.SerializeToString()
    for fault in faults_of("sign", benches[0].sites[:20]):
        faulty = plant(model, [fault])
        onnx.checker.check_model(faulty)
        kept = [node for node in faulty.graph.node if node not in model.graph.node]
        assert {node.op_type for node in kept} >= {"Neg"}
        assert len(faulty.graph.node) - len(model.graph.node) == len(kept) - 1
    assert model.SerializeToString() == before


def test_a_verdict_that_sees_nothing_is_found_out(benches: list[Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    bench = benches[0]
    monkeypatch.setattr(fault_trials, "graph_rows", lambda run: bench.rows)
    (trial,) = counted(bench, "sign", 1)
    assert not trial["first"]
    assert not trial["alone"]
    task = ("faults", json.dumps(astuple(SMALL)), "sign", "1")
    assert not is_reached({task: {"trials": [trial]}})
    assert f"{trial['what']} in {trial['planted'][0]}; nothing was named" in page({task: {"trials": [trial]}}, "x")


def test_a_false_alarm_misses_the_goal() -> None:
    task = ("clean", json.dumps(astuple(SMALL)), "0,1")
    right = {"checked": 2, "values": 10, "alarms": []}
    assert is_reached({task: right})
    assert not is_reached({task: {**right, "alarms": [{"seed": 1, "reason": "forward mul: 3 where 2 is noise"}]}})
    assert not is_reached({task: {"lost": "no answer in 9 s"}})


def test_an_interrupted_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, first, second = tmp_path / "journal", ("clean", "a", "0"), ("clean", "b", "0")
    asked = []

    def answer(command: object, tasks: list, jobs: int, seconds: float) -> object:
        asked.append(list(tasks))
        return ((task, {"checked": 1} if task == first else {"lost": "no answer in 9 s"}) for task in tasks)

    monkeypatch.setattr(workers, "_run", answer)
    for _ in range(2):
        found = list(workers.run_tasks([], [first, second], 1, 9, journal))
        assert found == [(first, {"checked": 1}), (second, {"lost": "no answer in 9 s"})]
    assert asked == [[first, second], [second]]


def test_a_clean_model_is_clean_for_every_seed() -> None:
    result = measure_clean(Subject("attention", batch="2", seq="3"), [0, 1, 2])
    assert (result["checked"], result["alarms"]) == (3, [])
    assert result["values"] > 3 * 50


@pytest.mark.slow
@pytest.mark.parametrize("precision", AUTOCAST)
@pytest.mark.parametrize("part", ["attention", "decoder", "model"])
def test_faults_of_all_kinds_are_blamed(part: str, precision: str) -> None:
    trials = []
    for run in graph_runs(Subject(part, precision=precision)):
        bench = Bench(run)
        trials += [trial for kind in KINDS for trial in counted(bench, kind, 5)]
        assert all(trial["named"] for trial in bench.triples(list(KINDS), 5))
    missed = [trial for trial in trials if not (trial["first"] and trial["alone"])]
    assert len(trials) > 100
    assert len(missed) <= 0.01 * len(trials), missed
