"""An ONNX model with its session: a callable that stands in for the FX graph it was made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import onnx_ir as ir
import torch

from dort_compare.errors import CheckError, ExecutionError
from dort_compare.runtime.kernels import with_kernels
from dort_compare.runtime.providers import SessionSettings
from dort_compare.runtime.session import Session, make_session
from dort_compare.scalars import as_tensor
from dort_compare.signature import GraphOutput, Scalar, Signature

Argument = torch.Tensor | int | float | bool
Result = torch.Tensor | Scalar

_QUIET = SessionSettings(session_options={"log_severity_level": 4})


class Program:
    """Takes the arguments of the graph, in order, and returns its outputs: tensors, numbers and None as torch would.

    Raises CheckError where a condition that the graph checks does not hold.

    ``model`` is the model that runs: the one given, with casts around nodes that the provider lacks a kernel for.
    ``providers`` are the (name, options) pairs of the session.
    """

    def __init__(
        self, model: ir.Model, signature: Signature, settings: SessionSettings, devices: Sequence[torch.device] = ()
    ) -> None:
        self.signature = signature
        self.providers = settings.resolved_providers(devices)
        self.model = with_kernels(model, self.providers)
        self._devices = {name: output.device for name, output in signature.computed.items()}
        self._session = make_session(self.model, settings, self.providers) if self._devices else None

    def __call__(self, *arguments: Argument) -> list[Result]:
        return self.returned(arguments, self.computed(*arguments))

    def returned(self, arguments: Sequence[Argument], computed: Mapping[str, torch.Tensor]) -> list[Result]:
        """The outputs of the graph, of its arguments and what the session has computed of them."""
        values: dict[str, Result] = {**self._named(arguments)}
        for name, result in computed.items():
            values[name] = _as_traced(result, self.signature.computed[name])
        for check in self.signature.checks:
            if not values[check.name]:
                raise CheckError(check.message)
        return [_returned(output, values) for output in self.signature.outputs]

    def computed(self, *arguments: Argument) -> dict[str, torch.Tensor]:
        """What the session computes of the arguments of the graph, by the names of the model's outputs."""
        if self._session is None:
            return {}
        feeds = {name: as_tensor(argument) for name, argument in self._named(arguments).items()}
        return dict(zip(self.signature.computed, self._run(self._session, feeds), strict=True))

    def _named(self, arguments: Sequence[Argument]) -> dict[str, Argument]:
        return {i.name: argument for i, argument in zip(self.signature.inputs, arguments, strict=True)}

    def _run(self, session: Session, feeds: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        """The computed values. Where a kernel fails that a check guards, the check is the error, as it is in torch."""
        try:
            return session.run(feeds, self._devices)
        except ExecutionError:
            for check in self.signature.checks:
                with suppress(ExecutionError):
                    (holds,) = self._alone(check.name).run(feeds, {check.name: self._devices[check.name]})
                    if not holds:
                        raise CheckError(check.message) from None
            raise

    def _alone(self, name: str) -> Session:
        """A session for one value and what it is computed from."""
        graph = ir.convenience.extract(self.model.graph, self.model.graph.inputs, [name])
        part = ir.Model(graph, ir_version=self.model.ir_version, functions=tuple(self.model.functions.values()))
        return make_session(part, _QUIET, self.providers)

    def boxed(self) -> Callable[[list[Argument]], list[Result]]:
        """The form that AOTAutograd calls: it empties the list of arguments, so that nothing outlives its last use."""

        def call(arguments: list[Argument]) -> list[Result]:
            taken = tuple(arguments)
            arguments.clear()
            return self(*taken)

        call._boxed_call = True  # type: ignore[attr-defined]
        return call


def _as_traced(value: torch.Tensor, output: GraphOutput) -> Result:
    """A computed value in the memory layout that torch traced, a size as a number."""
    if output.dtype is None:
        return value.item()
    if output.order is None:
        return value
    return torch.empty_permuted(value.shape, output.order, dtype=value.dtype, device=value.device).copy_(value)


def _returned(output: GraphOutput, values: Mapping[str, Result]) -> Result:
    if output.name is None:
        return output.constant
    if output.view is None:
        return values[output.name]
    return output.view.make(*(values[name] for name in output.view.operands))
