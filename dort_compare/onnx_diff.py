"""Compares two ONNX models that share no names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import onnx
import torch

from dort_compare.align.content import sketch
from dort_compare.align.few_bits import with_wide_outputs
from dort_compare.align.inputs import Inputs, make_inputs
from dort_compare.align.laid_out import Seen, laid_out
from dort_compare.align.orders import Order, Orders
from dort_compare.align.returned_twice import with_names_of_their_own
from dort_compare.align.sides import Side
from dort_compare.dump.model_file import read_model
from dort_compare.errors import ExecutionError, UsageError
from dort_compare.measure.diff.rounds import Rounds
from dort_compare.measure.diff.verdict import findings
from dort_compare.problems import as_dump_error
from dort_compare.report.diff import Diff
from dort_compare.report.progress import Waiting
from dort_compare.runtime.providers import ProviderSpec, SessionSettings
from dort_compare.trace.dataflow import Dataflow
from dort_compare.trace.dataflow_run import streamed
from dort_compare.trace.engine import Engine, evaluator_engine, ort_engine
from dort_compare.trace.graph_run import EngineName, check_engine

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
    if inputs is not None and not isinstance(inputs, Mapping):
        raise UsageError(f"inputs is a {type(inputs).__name__}; give tensors by input name, or None for random ones")
    flows = _flow(first, "first"), _flow(second, "second")
    with as_dump_error(f"{flows[0].title} or {flows[1].title}"), Waiting() as waiting:
        return _diff(flows, inputs, seed, engine, provider, waiting)


def _diff(
    flows: tuple[Dataflow, Dataflow],
    inputs: Mapping[str, torch.Tensor] | None,
    seed: int,
    engine_name: EngineName,
    provider: ProviderSpec,
    waiting: Waiting,
) -> Diff:
    waiting.stage("both models")
    engine = _engine(engine_name, provider)
    fed = make_inputs(*flows, inputs, seed)
    with _asking(fed):
        seen = _seen(flows[0], fed.values[0], engine, {}), _seen(flows[1], fed.values[1], engine, fed.orders)
    sides = laid_out(*seen), laid_out(*reversed(seen))
    rows = Rounds(sides, engine, fed, waiting.stage).rows()
    return Diff(findings(*sides, rows, fed.orders.values()), fed.origins)


def _flow(model: Model, title: str) -> Dataflow:
    read, title = (
        (model, title) if isinstance(model, onnx.ModelProto) else (read_model(Path(model), beside=True), str(model))
    )
    with as_dump_error(title):
        return Dataflow.of(with_wide_outputs(with_names_of_their_own(read)), title)


def _engine(name: EngineName, provider: ProviderSpec) -> Engine:
    check_engine(name)
    if name == "reference":
        return evaluator_engine
    return ort_engine(SessionSettings(providers=(provider,)).resolved_providers())


@contextmanager
def _asking(fed: Inputs) -> Iterator[None]:
    """What fails on sizes or integers that were drawn may run on others."""
    try:
        yield
    except ExecutionError as problem:
        if not fed.is_guess:
            raise
        raise type(problem)(f"{problem}; sizes or integers among its inputs were drawn; give --inputs") from None


def _seen(flow: Dataflow, inputs: Mapping[str, torch.Tensor], engine: Engine, given: Mapping[str, Order]) -> Seen:
    orders, sketches, before = Orders(flow, given), {}, {}
    for name, tensor in streamed(flow, inputs, engine):
        sketches[name] = sketch(tensor)
        order = orders.see(name, tuple(tensor.shape))
        if order is not None:
            before[name] = sketch(tensor.permute(order))
    return Seen(Side(flow, sketches), orders.of, before)
