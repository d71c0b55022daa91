"""The model that is compared, uncompiled: in plain eager and in float64."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import torch
from torch import nn

from dort_compare.measure.before_onnx.tracing import EagerModules
from dort_compare.measure.outcome import OutcomeRow, outcome_of, precision_of
from dort_compare.report.progress import Waiting
from dort_compare.trace import Outcome, run_module
from dort_compare.trace.call import Call, given
from dort_compare.trace.model_in_float64 import run_in_float64


class Subject:
    """A model with the call of it that everything is held against, and the coarsest ``precision`` of that."""

    def __init__(self, model: nn.Module, call: Call, waiting: Waiting) -> None:
        self.model, self.call = model, call
        self.precision = precision_of(model, call)
        self._waiting = waiting

    @property
    def parameters(self) -> Mapping[str, torch.Tensor]:
        """The parameters by name."""
        return dict(self.model.named_parameters())

    @property
    def given(self) -> Mapping[str, torch.Tensor]:
        """The parameters, and the tensors among the arguments, by name."""
        return given(self.parameters, self.call)

    def run(self) -> Outcome:
        """The outcome in plain eager."""
        return run_module(self.model, self.parameters, self.call, self.model.named_buffers)

    def run_watched(self) -> tuple[Outcome, EagerModules]:
        """The same, with what the modules gave."""
        self._waiting.stage("eager")
        modules = EagerModules(self.model)
        with modules.watching():
            return self.run(), modules

    def run_in_float64(self) -> Outcome:
        """The outcome in float64, computed anew."""
        return run_in_float64(self.model, self.call)

    def exact(self) -> Outcome:
        """The outcome in float64, computed once, when it is first asked for."""
        return self._exact

    @functools.cached_property
    def _exact(self) -> Outcome:
        self._waiting.stage("the model in float64")
        return self.run_in_float64()

    def held(self, backend: str, eager: Outcome, outcome: Outcome) -> tuple[OutcomeRow, ...]:
        """What a backend computed, held against ``eager``, and against float64 where that decides."""
        return outcome_of(backend, eager, outcome, self.exact, self.precision)
