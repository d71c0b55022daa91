"""What an optimizer changed in the values of an ONNX model, and whether that is more than noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx
import torch

from dort_compare.align.optimized import Region, surviving, with_constants_made
from dort_compare.errors import ExecutionError
from dort_compare.measure.floor import coarsest, noise_floor, rounding, rounding_of
from dort_compare.measure.local import extremes_of_both
from dort_compare.measure.metrics import Distance, deviation, distance
from dort_compare.measure.rows import json_number
from dort_compare.measure.shake import shake
from dort_compare.runtime.providers import Provider
from dort_compare.trace.local_run import LocalRun
from dort_compare.trace.onnx import AS_IT_IS, optimized
from dort_compare.trace.onnx_run import OnnxRun
from dort_compare.trace.parts import Parts

_TOGETHER = 64
_WAYS, _MORE_WAYS = 2, 8
_RIGHT = "the unoptimized value"
_MAY_MOVE = {torch.float64: 8.0, torch.float32: 8.0, torch.float16: 2.0, torch.bfloat16: 2.0}
"""How much more another order of computing may change than a rounding of what went in does."""

_FLOATING = {
    onnx.TensorProto.DOUBLE: torch.float64,
    onnx.TensorProto.FLOAT: torch.float32,
    onnx.TensorProto.FLOAT16: torch.float16,
    onnx.TensorProto.BFLOAT16: torch.bfloat16,
}

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
        self.device = next((t.device for t in inputs.values() if t.device.type == "cuda"), torch.device("cpu"))
        self._parts = Parts(model, providers, self.device)
        self.outputs = [v.name for v in model.graph.output if v.name in self._parts.producers]
        self._dtypes = _dtypes(model)
        self._results = self._computed(self.outputs, self.inputs)
        self._precision = self._coarsest(self.outputs, self.inputs)
        self._moved_results = self._moved(self.outputs, self.inputs, self._precision)

    def inside(self, optimized: onnx.ModelProto) -> Departure | None:
        """The first value of ``optimized`` that its nodes make wrong of right operands; None where there is none.

        Each is computed from this model's values, so that no error is inherited. Right is what the nodes that were
        replaced make of the same operands, and of operands moved by a rounding.
        """
        after = Parts(with_constants_made(optimized, self.model), self.providers, self.device)
        named = [name for name in self._parts.producers if name not in self._parts.untensored]
        kept = surviving(self._parts, after, named)
        names = [name for name in named if name in kept]
        right, local = OnnxRun(self._parts, self.inputs, names), LocalRun(after, self.inputs, names)
        for start in range(0, len(names), _TOGETHER):
            window = names[start : start + _TOGETHER]
            expected = right.values(window)
            for name in window:
                local.give(name, expected[name])
            operands = {name: local.operands(name) for name in window}
            for name, value in local.values(window)[0].items():
                region = Region.of(name, kept, self._parts, after)
                found = None if region.is_same else self._held(name, expected[name], value, operands[name])
                if found is not None:
                    return _by(found, region)
        return None

    def within(self) -> Departure | None:
        """The first value that this model has as a whole, but not its node alone of the same operands.

        Where a provider lacks a kernel, ONNX Runtime computes in another dtype, and may leave out a rounding between
        two nodes, with all optimizers off too. None where there is no such value.
        """
        names = [name for name in self._parts.producers if name not in self._parts.untensored]
        local = LocalRun(self._parts, self.inputs, names)
        for start in range(0, len(names), _TOGETHER):
            window = names[start : start + _TOGETHER]
            whole = self._computed(window, self.inputs)
            for name in window:
                local.give(name, whole[name])
            operands = {name: local.operands(name) for name in window}
            for name, alone in local.values(window)[0].items():
                found = self._apart(name, alone, whole[name], operands[name])
                if found is not None:
                    return self._as_made(found, name)
        return None

    def _apart(
        self, name: str, alone: torch.Tensor | ExecutionError, whole: torch.Tensor, operands: Values
    ) -> Departure | None:
        """How the value ``whole`` departs from that of its node ``alone``; None where the node draws by chance.

        Any rounding of the model may be the one that is left out, also one that an operand came through before; and it
        may well decide what a comparison or an index is, which is no departure.
        """
        if isinstance(alone, ExecutionError) or not alone.is_floating_point() or distance(alone, whole).equal:
            return None
        precision = coarsest([*(value.dtype for value in self.inputs.values()), *self._dtypes.values()])
        moved = [each[name] for each in self._moved([name], operands, precision, _MORE_WAYS)]
        right = "what its node alone makes of the same operands"
        found = _departure(name, alone, whole, moved, precision, _of_one_op, right)
        again = self._computed([name], operands) if found else {}
        return found if again and distance(alone, again[name]).equal else None

    def _as_made(self, found: Departure, name: str) -> Departure:
        """``found``, with the nodes that make the value ``name`` where ONNX Runtime has changed what it must."""
        made = optimized(self.model, AS_IT_IS, self.providers)
        after = Parts(with_constants_made(made, self.model), self.providers, self.device)
        kept = surviving(self._parts, after, list(self._parts.producers))
        return _by(found, Region.of(name, kept, self._parts, after)) if name in kept else found

    def at_outputs(self, results: Values) -> Departure | None:
        """The first of the outputs ``results`` of an optimized model that is wrong; None where there is none."""
        for name, value in results.items():
            expected, moved = self._results[name], [each[name] for each in self._moved_results]
            found = _departure(name, expected, value, moved, self._precision, _of_whole_graph)
            if found is not None:
                return found
        return None

    def _held(
        self, name: str, expected: torch.Tensor, value: torch.Tensor | ExecutionError, operands: Values
    ) -> Departure | None:
        if isinstance(value, ExecutionError):
            return Departure(str(value), name)
        if distance(expected, value).equal:
            return None
        precision = self._coarsest([name], operands)
        moved = [each[name] for each in self._moved([name], operands, precision)]
        return _departure(name, expected, value, moved, precision, _of_one_op)

    def _between(self, names: Sequence[str], operands: Values) -> list[int]:
        return self._parts.between(names, operands.__contains__)

    def _computed(self, names: Sequence[str], operands: Values) -> Values:
        return self._parts.run(self._between(names, operands), names, operands)[0]

    def _coarsest(self, names: Sequence[str], operands: Values) -> torch.dtype | None:
        """The dtype that rounds most on the way from ``operands`` to ``names``."""
        made = [name for i in self._between(names, operands) for name in self._parts.nodes[i].output]
        return coarsest([*(v.dtype for v in operands.values()), *(self._dtypes[n] for n in made if n in self._dtypes)])

    def _moved(
        self, names: Sequence[str], operands: Values, precision: torch.dtype | None, ways: int = _WAYS
    ) -> list[Values]:
        """``names`` computed of operands that are moved by one rounding to ``precision``, in some ways."""
        if precision is None or not any(value.is_floating_point() for value in operands.values()):
            return []
        generator = torch.Generator().manual_seed(0)
        shaken = [{n: _shaken(v, precision, generator) for n, v in operands.items()} for _ in range(ways)]
        try:
            return [self._computed(names, each) for each in shaken]
        except ExecutionError:
            return []


def _departure(
    name: str,
    expected: torch.Tensor,
    value: torch.Tensor,
    moved: Sequence[torch.Tensor],
    precision: torch.dtype | None,
    roundings: Callable[[torch.dtype | None, float], float],
    right: str = _RIGHT,
) -> Departure | None:
    """The departure of ``value`` from ``expected``, which is ``right`` in words; None where it is noise.

    Noise are the ``roundings`` in a precision for the largest element, and some times what the ``moved`` values have
    moved. Integers and booleans may differ where they moved.
    """
    whole = distance(expected, value)
    if whole.equal:
        return None
    if whole.finding is not None or whole.max_abs is None:
        return Departure(whole.finding or "cannot be measured", name, distance=whole)
    moved = [each for each in moved if each.shape == expected.shape]
    if not expected.is_floating_point():
        firm = torch.stack([each == expected for each in moved]).all(0) if moved else torch.ones_like(expected).bool()
        wrong = int((firm & (expected != value)).sum())
        return Departure(f"{wrong} of {whole.numel} elements differ", name, distance=whole) if wrong else None
    extreme = extremes_of_both(expected, value)
    theirs, ours, *moved = (v if extreme is None else v.masked_fill(extreme, 0) for v in (expected, value, *moved))
    found = distance(theirs, ours)
    scale = float(found.scale or 0)
    floor = max(roundings(precision, scale), rounding_of(expected.dtype, scale))
    gaps = (deviation(theirs, each) for each in moved)
    floor += (_MAY_MOVE[precision] if precision else 0.0) * max((gap or 0.0 for gap in gaps), default=0.0)
    if found.max_abs is None or found.max_abs <= floor:
        return None
    return Departure(
        f"lies {found.max_abs:.3g} from {right} where {floor:.3g} is noise",
        name,
        distance=whole,
        noise_floor=floor,
    )


def _by(found: Departure, region: Region) -> Departure:
    """``found``, made by the nodes of a region."""
    nodes = tuple(node.name for node in region.nodes)
    return replace(found, op_types=region.op_types, nodes=nodes, fused=region.fx_nodes)


def _of_one_op(precision: torch.dtype | None, scale: float) -> float:
    return rounding(precision) * scale if precision else 0.0


def _of_whole_graph(precision: torch.dtype | None, scale: float) -> float:
    return noise_floor(precision, scale, None)


def _shaken(value: torch.Tensor, precision: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Every element moved up or down at random by one rounding to ``precision``."""
    if not value.is_floating_point():
        return value
    return shake(value, precision, generator).to(value.dtype)


def _dtypes(model: onnx.ModelProto) -> Mapping[str, torch.dtype]:
    """The dtypes of values, as far as the model says them."""
    typed = {v.name: v.type.tensor_type.elem_type for v in (*model.graph.value_info, *model.graph.output)}
    return {name: _FLOATING[kind] for name, kind in typed.items() if kind in _FLOATING}
