"""An ONNX model with its session: a callable that stands in for the FX graph it was made from."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress

import onnx_ir as ir
import torch

from dort_compare.errors import ExecutionError
from dort_compare.rewrites import rewritten
from dort_compare.runtime.boxed import as_boxed
from dort_compare.runtime.folded import folded, part_of
from dort_compare.runtime.frozen import Frozen, RunTensors
from dort_compare.runtime.kernels import with_kernels
from dort_compare.runtime.outputs import Argument, Outputs, Result
from dort_compare.runtime.providers import SessionSettings
from dort_compare.runtime.session import Session, make_session
from dort_compare.scalars import as_tensor
from dort_compare.signature import Signature
from dort_compare.stages import Stages

_QUIET = SessionSettings(session_options={"log_severity_level": 4})


def _are_on_cpu(constants: Mapping[str, torch.Tensor]) -> bool:
    """Whether ONNX Runtime takes ``constants`` for its own and folds them."""
    return all(tensor.device.type == "cpu" for tensor in constants.values())


class Program:
    """Takes the arguments of the graph, in order, and returns its outputs: tensors, numbers and None as torch would.

    Raises CheckError, or what torch raises, where a condition that the graph checks does not hold.

    ``model`` is the model that runs: the one given, with casts around nodes that the provider lacks a kernel for. With
    ``rewrites`` it is rewritten before ONNX Runtime optimizes it; see ``dort_compare.rewrites``. ``still`` names inputs
    that are constants of the session for as long as they do not change. ``stages`` is a clock for what it takes.
    ``providers`` are the (name, options) pairs of the session.
    """

    def __init__(
        self,
        model: ir.Model,
        signature: Signature,
        settings: SessionSettings,
        devices: Sequence[torch.device] = (),
        *,
        rewrites: bool = False,
        still: Collection[str] = (),
        stages: Stages | None = None,
    ) -> None:
        stages = stages or Stages()
        self.signature = signature
        self.providers = settings.resolved_providers(devices)
        with stages("kernels"):
            self.model = with_kernels(model, self.providers)
        self._outputs = Outputs(signature)
        self._inputs = [graph_input.name for graph_input in signature.inputs]
        self._devices = {name: output.device for name, output in signature.computed.items()}
        with stages("rewrites") if rewrites else nullcontext():
            runs = rewritten(self.model, self.providers) if rewrites else self.model
        with stages("session"):
            self._session = make_session(runs, settings, self.providers) if self._devices else None
        self._run: RunTensors | None = None
        if self._session and still:  # that session has shown that the model runs: what does not falls back
            self._run = Frozen(self._inputs, still, functools.partial(self._with_constants, runs, settings))
        elif self._session:
            self._run = self._session.prepared(self._inputs, self._devices)

    def _with_constants(
        self, model: ir.Model, settings: SessionSettings, constants: Mapping[str, torch.Tensor]
    ) -> RunTensors:
        if _are_on_cpu(constants):
            session = make_session(model, settings, self.providers, frozen=constants)
        else:
            session = folded(model, constants, lambda part: make_session(part, settings, self.providers))
        return session.prepared([name for name in self._inputs if name not in constants], self._devices)

    def __call__(self, *arguments: Argument) -> list[Result]:
        return self._outputs(arguments, self._computed(arguments))

    def returned(
        self, arguments: Sequence[Argument], computed: Iterable[torch.Tensor], *, checked: bool = True
    ) -> list[Result]:
        """The outputs of the graph, of its arguments and what the session has computed of them.

        Unless ``checked``, conditions that do not hold are no error.
        """
        return self._outputs(arguments, list(computed), checked=checked)

    def computed(self, *arguments: Argument) -> dict[str, torch.Tensor]:
        """What the session computes of the arguments of the graph, by the names of the model's outputs."""
        return dict(zip(self._devices, self._computed(arguments), strict=True))

    def _computed(self, arguments: Sequence[Argument]) -> list[torch.Tensor]:
        """The computed values. Where a kernel fails that a check guards, the check is the error, as it is in torch."""
        if self._run is None:
            return []
        tensors = [a if isinstance(a, torch.Tensor) else as_tensor(a) for a in arguments]
        try:
            return self._run(tensors)
        except ExecutionError:
            if failed := self._failed_check(tensors):
                raise failed from None
            raise

    def _failed_check(self, tensors: Sequence[torch.Tensor]) -> RuntimeError | None:
        """What the first check raises that does not hold, as far as its value can be computed."""
        feeds = dict(zip(self._inputs, tensors, strict=True))
        for check in self.signature.checks:
            with suppress(ExecutionError):
                (value,) = self._alone(check.name).run(feeds, {check.name: self._devices[check.name]})
                try:
                    check.verify(value)
                except RuntimeError as failed:
                    return failed
        return None

    def _alone(self, name: str) -> Session:
        """A session for one value and what it is computed from."""
        return make_session(part_of(self.model, self.model.graph.inputs, [name]), _QUIET, self.providers)

    def boxed(self) -> Callable[[list[Argument]], list[Result]]:
        """The form that AOTAutograd calls: it empties the list of arguments, so that nothing outlives its last use."""

        @as_boxed
        def call(arguments: list[Argument]) -> list[Result]:
            taken = tuple(arguments)
            arguments.clear()
            return self(*taken)

        return call
