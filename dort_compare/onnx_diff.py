"""Compares two ONNX models that share no names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import onnx
import torch

from dort_compare.align.content import Sketch, sketch
from dort_compare.align.inputs import Inputs, make_inputs
from dort_compare.align.pair import Pair
from dort_compare.align.pairing import Pairing
from dort_compare.align.returned import unpaired_counterparts
from dort_compare.align.sides import Side
from dort_compare.dump.model_file import read_model
from dort_compare.errors import told
from dort_compare.measure.diff.refuted_pairs import effectless, misleading, unfolded
from dort_compare.measure.diff.two_models import Lockstep, Met
from dort_compare.measure.diff.value_rows import PairJudge, ValueRow
from dort_compare.measure.diff.verdict import findings
from dort_compare.report.diff import Diff
from dort_compare.report.progress import Waiting
from dort_compare.runtime.providers import ProviderSpec, SessionSettings
from dort_compare.trace.dataflow import Dataflow
from dort_compare.trace.engine import Engine, ort_engine, reference_engine
from dort_compare.trace.execution import streamed
from dort_compare.trace.graph_run import EngineName, check_engine

_ROUNDS = 8
Model = onnx.ModelProto | str | Path


def diff(
    first: Model,
    second: Model,
    inputs: Mapping[str, torch.Tensor] | None = None,
    *,
    seed: int = 0,
    engine: EngineName = "ort",
    provider: ProviderSpec = "cpu",
) -> Diff:
    """Pairs the values of two ONNX models by dataflow and content and says which is the first that departs.

    Args:
        first: what ``second`` is held against; both run without optimizations.
        second: the model that is judged.
        inputs: tensors by input name, of either model; None for random ones.
        seed: of random inputs.
        engine: "ort" (ONNX Runtime) or "reference" (ONNX's reference evaluator).
        provider: where ONNX Runtime runs them.

    Raises UsageError for models and inputs that cannot be compared, DumpError for files that cannot be read,
    ExecutionError where an engine refuses a model or fails.
    """
    flows = _flow(first, "first"), _flow(second, "second")
    with told(f"{flows[0].title} or {flows[1].title}"), Waiting() as waiting:
        return _diff(flows, inputs, seed, engine, provider, waiting)


def _diff(
    flows: tuple[Dataflow, Dataflow],
    inputs: Mapping[str, torch.Tensor] | None,
    seed: int,
    engine: EngineName,
    provider: ProviderSpec,
    waiting: Waiting,
) -> Diff:
    waiting.stage("both models")
    engines = _engine(engine, provider), _engine(engine, provider)
    fed = make_inputs(*flows, inputs, seed)
    sides = _side(flows[0], fed.values[0], engines[0]), _side(flows[1], fed.values[1], engines[1])
    refused: frozenset[tuple[str, str]] = frozenset()
    forced: dict[str, Sketch] = {}
    known: set[tuple[str, str]] = set()
    presuming: set[str] = set()
    rows: list[ValueRow] = []
    for number in range(1, _ROUNDS + 1):
        waiting.stage(f"values paired and compared, round {number}")
        second_side = replace(sides[1], sketches={**sides[1].sketches, **forced})
        kept = [row.pair for row in rows if _is_kept(row) and (row.pair.first, row.pair.second) not in refused]
        kept = [pair for pair in kept if pair.second not in presuming]
        pairs = Pairing(sides[0], second_side, fed.pairs, _outputs(sides[0], second_side), kept, refused).pairs()
        pairs += unpaired_counterparts(*sides, pairs)
        names = {(pair.first, pair.second) for pair in pairs}
        if names == known:
            break
        rows, forced, failing = _measured(sides[0], sides[1], pairs, engines, fed)
        known, refused = names, refused | failing | _refuted(*sides, rows)
        presuming = sides[1].flow.behind(other for _, other in failing)
    return Diff(findings(*sides, rows), fed.origins)


def _refuted(first: Side, second: Side, rows: list[ValueRow]) -> frozenset[tuple[str, str]]:
    return effectless(first, second, rows) | misleading(first, second, rows) | unfolded(first, second, rows)


def _is_kept(row: ValueRow) -> bool:
    """Whether later pairs rest on it: what was computed behind it presumes it."""
    return row.pair.how == "place" or (row.status == "diverges" and row.pair.how in ("dataflow", "constant"))


def _flow(model: Model, title: str) -> Dataflow:
    read, title = (
        (model, title) if isinstance(model, onnx.ModelProto) else (read_model(Path(model), beside=True), str(model))
    )
    with told(title):
        return Dataflow.of(read, title)


def _engine(name: EngineName, provider: ProviderSpec) -> Engine:
    check_engine(name)
    if name == "reference":
        return reference_engine
    return ort_engine(SessionSettings(providers=(provider,)).resolved_providers())


def _side(flow: Dataflow, inputs: Mapping[str, torch.Tensor], engine: Engine) -> Side:
    return Side(flow, {name: sketch(tensor) for name, tensor in streamed(flow, inputs, engine)})


def _outputs(first: Side, second: Side) -> list[tuple[str, str]]:
    """Outputs by name, then in order among those of one size."""
    ours = [name for name in second.flow.outputs if name in second.sketches]
    theirs = [name for name in first.flow.outputs if name in first.sketches]
    pairs = [(name, name) for name in theirs if name in ours and _is_like(first, name, second, name)]
    taken = {name for name, _ in pairs}
    ours = [name for name in ours if name not in taken]
    for name in (name for name in theirs if name not in taken):
        like = [other for other in ours if _is_like(first, name, second, other)]
        if like:
            ours.remove(like[0])
            pairs.append((name, like[0]))
    return pairs


def _is_like(first: Side, name: str, second: Side, other: str) -> bool:
    return first.sketches[name].group == second.sketches[other].group


def _measured(
    first: Side, second: Side, pairs: list[Pair], engines: tuple[Engine, Engine], fed: Inputs
) -> tuple[list[ValueRow], dict[str, Sketch], set[tuple[str, str]]]:
    """A row for each pair, sketches of what the second model's other values are on the first one's operands, and the
    pairs that have no row, since nodes fail on them."""
    judge, rows, forced = PairJudge(first, second, pairs), [], {}
    both = Lockstep(first, second, pairs, engines)
    for found in both.run(fed.values):
        if isinstance(found, Met):
            rows.append(judge.row(found))
        else:
            forced[found[0]] = sketch(found[1])
    place = {pair: i for i, pair in enumerate(pairs)}
    rows = [row for row in rows if (row.pair.first, row.pair.second) not in both.refused]
    return sorted(rows, key=lambda row: place[row.pair]), forced, both.refused
