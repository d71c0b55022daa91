"""What changes nothing about a model changes nothing about its verdict."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
import torch
from fault_kinds import faults_of
from fault_subjects import Subject, graph_runs
from fault_trials import CLEAR, Bench
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planted import plant
from rewrites import REWRITES, Rewrite

from dort_compare.measure.graph_rows import graph_rows
from dort_compare.trace import GraphRun

FEW = settings(max_examples=4, suppress_health_check=list(HealthCheck))
MANY = settings(FEW, max_examples=200)
rewrites = st.lists(st.sampled_from(REWRITES), min_size=1, max_size=3)
randoms = st.builds(Random, st.integers(0, 2**32))


@pytest.fixture(scope="module")
def benches() -> list[Bench]:
    with torch.random.fork_rng():
        return [Bench(run) for run in graph_runs(Subject("attention", precision="float32", batch="1", seq="4"))]


def astray(run: GraphRun, chosen: list[Rewrite], random: Random) -> set[str]:
    model = run.onnx_model
    for rewrite in chosen:
        model = rewrite(model, random)
    return {row.fx_node for row in graph_rows(replace(run, onnx_model=model)) if row.status == "diverges"}


def check_clean(benches: list[Bench], chosen: list[Rewrite], random: Random) -> None:
    for bench in benches:
        assert not astray(bench.run, chosen, random)


def check_faulty(benches: list[Bench], chosen: list[Rewrite], random: Random) -> None:
    bench = random.choice(benches)
    faults = list(faults_of(random.choice(["operator", "factor", "halves", "permutation", "slice"]), bench.sites))
    fault = random.choice(faults)
    if (bench.clean.moved(fault, bench.floors) or 0) <= CLEAR:
        return
    faulty = replace(bench.run, onnx_model=plant(bench.run.onnx_model, [fault]))
    before = astray(faulty, [], random)
    assert before
    assert astray(faulty, chosen, random) == before, fault.what


@pytest.mark.parametrize("rewrite", REWRITES, ids=lambda rewrite: rewrite.__name__)
def test_a_rewrite_changes_the_model_and_not_its_verdict(benches: list[Bench], rewrite: Rewrite) -> None:
    for bench in benches:
        assert rewrite(bench.run.onnx_model, Random(0)) != bench.run.onnx_model
    check_clean(benches, [rewrite], Random(0))


@FEW
@given(chosen=rewrites, random=randoms)
def test_clean_stays_clean(benches: list[Bench], chosen: list[Rewrite], random: Random) -> None:
    check_clean(benches, chosen, random)


@FEW
@given(chosen=rewrites, random=randoms)
def test_a_fault_stays_where_it_is(benches: list[Bench], chosen: list[Rewrite], random: Random) -> None:
    check_faulty(benches, chosen, random)


@pytest.mark.slow
@MANY
@given(chosen=rewrites, random=randoms)
def test_clean_stays_clean_every_time(benches: list[Bench], chosen: list[Rewrite], random: Random) -> None:
    check_clean(benches, chosen, random)


@pytest.mark.slow
@MANY
@given(chosen=rewrites, random=randoms)
def test_a_fault_stays_where_it_is_every_time(benches: list[Bench], chosen: list[Rewrite], random: Random) -> None:
    check_faulty(benches, chosen, random)
