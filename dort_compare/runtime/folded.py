"""What a model computes of constants alone, computed once: ONNX Runtime folds those of the CPU, and no others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping

import onnx_ir as ir
import torch

from dort_compare.runtime.computed_once import computed_once
from dort_compare.runtime.session import Session


def folded(model: ir.Model, constants: Mapping[str, torch.Tensor], make: Callable[[ir.Model], Session]) -> Session:
    """A session for ``model``, made by ``make``, that takes the inputs which are not among ``constants``.

    The constants themselves, in the memory that they have, and what nodes make of them alone are inputs of it that stay
    the same: `Session.prepared` hands them over in each run.
    """
    handed = list(computed_once(model.graph, constants))
    if not handed:
        return _holding(make(model), constants)
    ours = [value for value in model.graph.inputs if value.name in constants]
    before = make(part_of(model, ours, handed))
    devices = {str(value.name): _device_of(constants) for value in handed}
    found = before.run({str(value.name): constants[str(value.name)] for value in ours}, devices)
    rest = make(part_of(model, [*model.graph.inputs, *handed], model.graph.outputs))
    return _holding(rest, {**constants, **dict(zip(devices, found, strict=True))})


def _holding(session: Session, constants: Mapping[str, torch.Tensor]) -> Session:
    return dataclasses.replace(session, constants={**session.constants, **constants})


def _device_of(constants: Mapping[str, torch.Tensor]) -> torch.device:
    return next(iter(constants.values())).device


def part_of(model: ir.Model, inputs: Collection[ir.Value], outputs: Collection[ir.Value | str]) -> ir.Model:
    """What of a model computes ``outputs``, values or their names, of ``inputs``."""
    graph = ir.convenience.extract(model.graph, [*inputs], [*outputs])
    return ir.Model(graph, ir_version=model.ir_version, functions=tuple(model.functions.values()))
