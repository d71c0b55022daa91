"""What a reproduction holds: the ONNX nodes of one FX node, cut out, with operands and expected values."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

import onnx
import torch
from torch import fx

from dort_compare.align import values_of_fx_nodes
from dort_compare.align.provenance import OnnxValue
from dort_compare.dtypes import is_complex_tensor
from dort_compare.errors import ExecutionError, UsageError, nearest
from dort_compare.fx_graph import shown_call
from dort_compare.measure.distance.metrics import deviation, distance
from dort_compare.measure.noise.extremes import has_same_extremes, scale_but_for_extremes
from dort_compare.measure.noise.floor import rounding
from dort_compare.measure.noise.local import local_error
from dort_compare.provenance import Provenance
from dort_compare.repro.cut import cut_names, cut_out
from dort_compare.runtime.binding import device_of
from dort_compare.scalars import as_fed
from dort_compare.trace import GraphRun, Replay
from dort_compare.trace.lockstep import Step, lockstep
from dort_compare.trace.parts import Parts
from dort_compare.trace.replay import chain_to


@dataclass(frozen=True)
class Result:
    """One value that the FX node computes: its ONNX name, torch's, float64's and ONNX's value on the same operands.

    ``exact`` is None where there is none, ``error`` says why ONNX Runtime made no ``value``. ``noise_floor`` is in the
    unit of the values. ``is_open`` says that both values are right though whole numbers differ, such as indices of
    equal elements, ``torch_departs`` that torch's own value is further from float64 than noise. ``among`` marks the
    elements that depart by the noise floor, where that is theirs alone: others are far larger; None where it is all's.
    """

    name: str
    expected: torch.Tensor
    exact: torch.Tensor | None
    value: torch.Tensor | None
    noise_floor: float
    error: str | None = None
    is_open: bool = False
    torch_departs: bool = False
    among: torch.Tensor | None = None

    @property
    def departs(self) -> bool:
        """Whether one of the two values is wrong, as the script that is shipped judges."""
        if self.value is None or self.value.shape != self.expected.shape or self.value.dtype != self.expected.dtype:
            return True
        value = self.judged(self.value)
        found = distance(self.judged(self.expected), value)
        if self.is_open or (found.max_abs is not None and not found.finding and found.max_abs <= self.noise_floor):
            return False
        exact = None if self.exact is None else self.judged(self.exact)
        is_near = exact is not None and has_same_extremes(exact, value) and deviation(exact, value) <= self.noise_floor
        return self.torch_departs or not is_near

    def judged(self, tensor: torch.Tensor) -> torch.Tensor:
        """What the noise floor is said of, of a tensor of the shape of the result."""
        return tensor if self.among is None else tensor[self.among]


@dataclass(frozen=True)
class Case:
    """The ONNX model of one FX node with its operands, by ONNX name, and its results."""

    origin: Provenance
    model: onnx.ModelProto
    operands: Mapping[str, torch.Tensor]
    results: Sequence[Result]
    providers: Sequence[str]

    @property
    def departs(self) -> bool:
        """Whether any result does."""
        return any(result.departs for result in self.results)


def case_of(run: GraphRun, fx_node: str) -> Case:
    """Cuts the ONNX nodes of one FX node out of the model of ``run``, to read torch's values of their operands.

    Raises UsageError for a name that the graph has no call of, or one that no ONNX value stands for.
    """
    call = _call(run, fx_node)
    values = {name: value for name, value in values_of_fx_nodes(run.onnx_model).items() if not value.opaque}
    stands = {name: value.name for name, value in values.items()}
    results = {stands[node.name]: node for node in _results(call) if node.name in stands}
    if not results:
        raise UsageError(f"no ONNX value stands for {call.name} of graph {run.index}; choose another node")
    parts = Parts(run.onnx_model, run.providers, device_of(run.inputs.values()))
    nodes, reads = cut_names(parts, results.keys(), {*run.inputs, *stands.values()})
    operands = {name: as_fed(value) for name, value in run.inputs.items() if name in reads}
    chains = {node: _chain(node, stands) for node in results.values()}
    wanted = {node for result, chain in chains.items() for node in (*chain, result)}
    steps: dict[fx.Node, Step] = {}
    for step in lockstep(run.graph_module, list(run.inputs.values())):
        name = stands.get(step.node.name, "")
        if name in reads and name not in operands:
            operands[name] = as_fed(step.value)
        if step.node in wanted:
            steps[step.node] = step
            if len(steps) == len(wanted):
                break
    try:
        made: Mapping[str, torch.Tensor] | str = parts.run(nodes, list(results), operands)[0]
    except ExecutionError as problem:
        made = str(problem)
    found = [
        _result(values[node.name], steps[node], _replay(node, chains[node], steps), made) for node in results.values()
    ]
    model = cut_out(run.onnx_model, nodes, operands, {result.name: result.expected for result in found})
    names = [name for name, _ in run.providers]
    return Case(Provenance.of(call, run.phase), model, operands, found, names)


def _call(run: GraphRun, name: str) -> fx.Node:
    calls = {node.name: node for node in run.graph_module.graph.nodes if node.op == "call_function"}
    if name not in calls:
        raise UsageError(
            f"graph {run.index} has no call {name!r}{nearest(name, list(calls))}; check names those that differ"
        )
    return shown_call(calls[name])


def _results(call: fx.Node) -> list[fx.Node]:
    """The values that a call computes: itself, or the elements of what it returns, or the parts of a complex tensor."""
    value = call.meta.get("val")
    shown = [node for node in call.users if shown_call(node) is call]
    return shown if isinstance(value, tuple | list) or is_complex_tensor(value) else [call]


def _chain(node: fx.Node, stands: Container[str]) -> list[fx.Node]:
    """The calls between the values that the ONNX nodes of ``node`` read and those that it reads, which complex ones
    are: no ONNX value stands for these."""
    reads = (read for read in node.all_input_nodes if read.op == "call_function")
    is_cut = any(is_complex_tensor(read.meta.get("val")) and read.name not in stands for read in reads)
    return chain_to(node, stands) if is_cut else []


def _replay(node: fx.Node, chain: Sequence[fx.Node], steps: Mapping[fx.Node, Step]) -> Replay:
    values = dict(steps[node].operands)
    if not chain:
        return Replay(values)
    for each in chain:
        values |= steps[each].operands
    made = {each.name for each in chain}
    return Replay({name: value for name, value in values.items() if name not in made}, chain)


def _result(onnx_value: OnnxValue, step: Step, replay: Replay, made: Mapping[str, torch.Tensor] | str) -> Result:
    name, expected = onnx_value.name, as_fed(step.value)
    exact = replay.value(step.node, in_float64=True) if expected.is_floating_point() else None
    exact = exact if exact is not None and exact.shape == expected.shape else None
    scale = scale_but_for_extremes(expected) if expected.is_floating_point() else 0.0
    floor = rounding(expected.dtype) * scale
    if isinstance(made, str):
        return Result(name, expected, exact, None, floor, made)
    whole, rounds = distance(expected, made[name]), onnx_value.rounds_between
    error = local_error(replay, step.node, expected, made[name], whole, rounds_between=rounds)
    is_open = error.is_noise and not expected.is_floating_point() and not error.distance.equal
    among = None if error.is_noise else error.among
    noise = max(0.0, floor, error.noise_floor) if among is None else error.noise_floor
    return Result(name, expected, exact, made[name], noise, None, is_open, error.torch_departs, among)
