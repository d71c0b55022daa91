"""An ONNX model on ONNX Runtime, every value of it exposed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import onnx
import onnx_ir as ir
import torch

from dort_compare.errors import ExecutionError
from dort_compare.protos import copy_of
from dort_compare.runtime.binding import device_of
from dort_compare.runtime.constants import as_torch
from dort_compare.runtime.program import Argument
from dort_compare.runtime.providers import Provider, SessionSettings
from dort_compare.runtime.session import make_session
from dort_compare.scalars import as_fed
from dort_compare.trace.as_it_is import AS_IT_IS


def onnx_values(
    model: onnx.ModelProto, inputs: Mapping[str, Argument], providers: Sequence[Provider]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Runs ``model`` as it stands, no optimization, and yields (name, tensor) for every node output, in order.

    Raises ExecutionError where ONNX Runtime refuses the model or an input is missing.
    """
    missing = [value.name for value in model.graph.input if value.name not in inputs]
    if missing:
        raise ExecutionError(f"no value for the model's inputs {', '.join(missing)}")
    names = [name for node in model.graph.node for name in node.output if name]
    if not names:
        return
    feeds = {value.name: as_fed(inputs[value.name]) for value in model.graph.input}
    session = make_session(_exposing(model, names), AS_IT_IS, providers)
    values = session.run(feeds, dict.fromkeys(names, device_of(feeds.values())))
    for name in names:
        yield name, values.pop(0)


def initializers(model: onnx.ModelProto) -> dict[str, torch.Tensor]:
    """The constants of ``model`` by name, on the CPU."""
    return {tensor.name: as_torch(ir.from_proto(tensor)) for tensor in model.graph.initializer}


def optimized(
    model: onnx.ModelProto,
    settings: SessionSettings,
    providers: Sequence[Provider],
    disabled: Sequence[str] | None = None,
) -> onnx.ModelProto:
    """What ONNX Runtime's optimizers make of ``model``; ``disabled`` names those that are off, as for ``make_session``.

    A model without nodes, as rewrites leave of a graph that returns views of its inputs alone, is what it was: ONNX
    Runtime makes no session of it. Raises ExecutionError where ONNX Runtime refuses the model.
    """
    if not model.graph.node:
        return model
    with tempfile.TemporaryDirectory(prefix="dort_compare_") as folder:
        path = Path(folder) / "optimized.onnx"
        options = settings.make_options()
        before, options.optimized_model_filepath = options.optimized_model_filepath, str(path)
        try:
            make_session(model, SessionSettings(session_options=options), providers, disabled)
        finally:
            options.optimized_model_filepath = before
        return _with_constants_of(model, onnx.load(path))


def _with_constants_of(model: onnx.ModelProto, made: onnx.ModelProto) -> onnx.ModelProto:
    """``made`` with the constants of ``model`` that were too large for the session, which took them as inputs."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    given = [value for value in made.graph.input if value.name not in constants]
    large = [constants[value.name] for value in made.graph.input if value.name in constants]
    if large:
        del made.graph.input[:]
        made.graph.input.extend(given)
        made.graph.initializer.extend(large)
    return made


def _exposing(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    known = {value.name: value for value in (*model.graph.value_info, *model.graph.output)}
    exposed = copy_of(model)
    del exposed.graph.output[:]
    exposed.graph.output.extend(known.get(name) or onnx.ValueInfoProto(name=name) for name in names)
    return exposed
