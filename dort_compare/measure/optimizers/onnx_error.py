"""What an optimizer changed in the values of an ONNX model, and whether that is more than noise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import onnx
import torch

from dort_compare.align.optimized import Region, surviving, with_constants_made
from dort_compare.align.provenance import node_name
from dort_compare.dtypes import coarsest, dtype_of_onnx
from dort_compare.errors import ExecutionError
from dort_compare.measure.distance.distances import Distance
from dort_compare.measure.distance.metrics import distance
from dort_compare.measure.noise.floor import noise_floor
from dort_compare.measure.noise.moved import Moved, MovedError, local_error_by_moving, moved_error
from dort_compare.measure.noise.shake import shake
from dort_compare.measure.optimizers.quantized import Quantized
from dort_compare.measure.rows import json_number
from dort_compare.runtime.binding import device_of
from dort_compare.runtime.providers import Provider
from dort_compare.trace.local_run import LocalRun
from dort_compare.trace.onnx_run import OnnxRun
from dort_compare.trace.parts import Parts

_TOGETHER = 64

Values = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Departure:
    """A value, of the name ``value``, that an optimized model gets wrong, and what computes it there.

    ``fused`` holds the FX nodes whose ONNX nodes those took the place of, as far as the model says. Where the model
    fails instead, ``reason`` says how, and there need not be a value.
    """

    reason: str
    value: str | None = None
    op_types: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    fused: tuple[str, ...] = ()
    distance: Distance | None = None
    noise_floor: float | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "reason": self.reason,
            "onnx_value": self.value,
            "op_types": list(self.op_types),
            "onnx_nodes": list(self.nodes),
            "fused": list(self.fused),
            "distance": self.distance.to_json() if self.distance else None,
            "noise_floor": json_number(self.noise_floor),
        }


class Unoptimized:
    """A model as it stands, no optimization, run on some inputs: what others are held against.

    Raises ExecutionError where it does not run.
    """

    def __init__(self, model: onnx.ModelProto, inputs: Values, providers: Sequence[Provider]) -> None:
        self.model = model
        self.providers = providers
        self.inputs = {value.name: inputs[value.name] for value in model.graph.input if value.name in inputs}
        self.device = device_of(inputs.values())
        self._parts = Parts(model, providers, self.device)
        self._quantized = Quantized(self._parts)
        computed = self._parts.producers.keys() - self._parts.untensored
        self.outputs = list(dict.fromkeys(v.name for v in model.graph.output if v.name in computed))
        self._dtypes = _dtypes(model)
        self._results = self._computed(self.outputs, self.inputs)
        self._precision = self._coarsest(self.outputs, self.inputs)
        moved = partial(self._moved, self.outputs, self.inputs, self._precision, False)
        self._moved_results = cache(lambda roundings, ways: list(moved(roundings, ways)))

    def inside(self, optimized: onnx.ModelProto, alone: bool = False) -> Departure | None:
        """The first value of ``optimized`` that its nodes make wrong of right operands; None where there is none.

        Each is computed from this model's values, so that no error is inherited. Right is what the nodes that were
        replaced make of the same operands, and of operands moved by a rounding.

        With ``alone`` each of this model's nodes runs by itself: where a provider lacks a kernel, ONNX Runtime computes
        in another dtype, and may leave out a rounding between two nodes of this model too. Comparisons and indices,
        which such a rounding decides, are left out then.
        """
        after = Parts(with_constants_made(optimized, self.model), self.providers, self.device)
        named = [name for name in self._parts.producers if name not in self._parts.untensored]
        kept = surviving(self._parts, after, named)
        names = [name for name in named if name in kept]
        right, local = OnnxRun(self._parts, self.inputs, named if alone else names), LocalRun(after, self.inputs, names)
        for window in _windows(named if alone else names):
            expected = _one_by_one(right, window) if alone else right.values(window)
            surviving_here = [name for name in window if name in kept]
            for name in surviving_here:
                local.give(name, expected[name])
            operands = {name: local.operands(name) for name in surviving_here}
            for name, value in local.values(surviving_here)[0].items():
                region = Region.of(name, kept, self._parts, after)
                if region.is_same or (alone and not expected[name].is_floating_point()):
                    continue
                found = self._held(name, expected[name], value, operands[name], alone)
                if found is not None and not self._is_quantized_early(name, expected[name], value):
                    nodes = tuple(node_name(node) for node in region.nodes)
                    return replace(found, op_types=region.op_types, nodes=nodes, fused=region.fx_nodes)
        return None

    def at_outputs(self, results: Values) -> Departure | None:
        """The first of the outputs ``results`` of an optimized model that is wrong; None where there is none."""
        for name, value in results.items():
            expected, moved = self._results[name], _of(name, self._moved_results)
            error = partial(moved_error, expected, value, expected, moved, self._precision, _of_whole_graph)
            found = _departure(name, expected, value, error)
            if found is not None:
                return found
        return None

    def _held(
        self,
        name: str,
        expected: torch.Tensor,
        value: torch.Tensor | ExecutionError,
        operands: Values,
        alone: bool,
    ) -> Departure | None:
        if isinstance(value, ExecutionError):
            return Departure(str(value), name)
        if distance(expected, value).equal:
            return None
        precision = self._coarsest([name], operands)
        moved = _of(name, partial(self._moved, [name], operands, precision, alone))
        error = partial(local_error_by_moving, expected, value, expected, moved, precision)
        return _departure(name, expected, value, error)

    def _is_quantized_early(self, name: str, expected: torch.Tensor, value: torch.Tensor | ExecutionError) -> bool:
        """Whether a value is what the quantizations that alone read it leave of the right one."""
        if isinstance(value, ExecutionError):
            return False
        left = self._quantized.left(name, expected)
        errors = (partial(moved_error, each, value, each, _unmoved, expected.dtype) for each in left)
        found = (_departure(name, each, value, error) for each, error in zip(left, errors, strict=True))
        return bool(left) and all(departure is None for departure in found)

    def _between(self, names: Sequence[str], operands: Values) -> list[int]:
        return self._parts.between(names, operands.__contains__)

    def _computed(self, names: Sequence[str], operands: Values, alone: bool = False) -> Values:
        nodes = self._between(names, operands)
        if not alone:
            return self._parts.run(nodes, names, operands)[0]
        made = [name for i in nodes for name in self._parts.nodes[i].output if name]
        made = [name for name in made if name not in self._parts.untensored]
        return _one_by_one(OnnxRun(self._parts, operands, made), made)

    def _coarsest(self, names: Sequence[str], operands: Values) -> torch.dtype | None:
        """The dtype that rounds most on the way from ``operands`` to ``names``."""
        made = [name for i in self._between(names, operands) for name in self._parts.nodes[i].output]
        return coarsest([*(v.dtype for v in operands.values()), *(self._dtypes[n] for n in made if n in self._dtypes)])

    def _moved(
        self,
        names: Sequence[str],
        operands: Values,
        precision: torch.dtype | None,
        alone: bool,
        roundings: float,
        ways: int,
    ) -> Iterator[Values]:
        """``names`` computed of operands that are moved by so many roundings to ``precision``, in so many ways."""
        if precision is None or not any(value.is_floating_point() for value in operands.values()):
            return
        shaken = partial(_shaken, precision, torch.Generator().manual_seed(0), roundings)
        for _ in range(ways):
            try:
                yield self._computed(names, {n: shaken(v) for n, v in operands.items()}, alone)
            except ExecutionError:
                return


def _windows(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[start : start + _TOGETHER] for start in range(0, len(names), _TOGETHER))


def _one_by_one(run: OnnxRun, names: Sequence[str]) -> dict[str, torch.Tensor]:
    return {name: run.values([name])[name] for name in names}


def _unmoved(*_: float) -> tuple[torch.Tensor, ...]:
    """For values that nothing but their own roundings excuses."""
    return ()


def _of(name: str, moved: Callable[[float, int], Iterable[Values]]) -> Moved:
    """What becomes of one of the values that ``moved`` gives."""
    return lambda roundings, ways: (each[name] for each in moved(roundings, ways))


def _departure(
    name: str, expected: torch.Tensor, value: torch.Tensor, error: Callable[[], MovedError]
) -> Departure | None:
    """The departure of ``value`` from ``expected``, whose ``error`` is asked for where it is a number; None where it is
    noise."""
    whole = distance(expected, value).between("the unoptimized value", "the optimized one")
    if whole.equal:
        return None
    if whole.finding is not None or whole.max_abs is None:
        return Departure(whole.finding or "cannot be measured", name, distance=whole)
    found = error()
    if found.is_noise:
        return None
    if not expected.is_floating_point():
        return Departure(f"{found.gap} of {whole.numel} elements differ", name, distance=whole)
    return Departure(
        f"lies {found.gap:.3g} from the unoptimized value where {found.noise_floor:.3g} is noise",
        name,
        distance=whole,
        noise_floor=found.noise_floor,
    )


def _of_whole_graph(precision: torch.dtype | None, scale: float) -> float:
    return noise_floor(precision, scale, None)


def _shaken(precision: torch.dtype, generator: torch.Generator, roundings: float, value: torch.Tensor) -> torch.Tensor:
    """Every element of a floating ``value`` moved up or down at random by so many roundings to ``precision``."""
    if not value.is_floating_point():
        return value
    return shake(value, precision, generator, roundings).to(value.dtype)


def _dtypes(model: onnx.ModelProto) -> Mapping[str, torch.dtype]:
    """The dtypes of values, as far as the model says them."""
    typed = {v.name: v.type.tensor_type.elem_type for v in (*model.graph.value_info, *model.graph.output)}
    return {name: dtype for name, kind in typed.items() if (dtype := dtype_of_onnx(kind)) is not None}
