"""The four executions of a graph, in windows of a few values: torch, float64, ONNX, and ONNX on torch's operands."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from dort_compare.errors import ExecutionError
from dort_compare.runtime.binding import device_of
from dort_compare.scalars import as_tensor
from dort_compare.trace.graph_run import GraphRun
from dort_compare.trace.local_run import LocalRun
from dort_compare.trace.lockstep import Step, lockstep
from dort_compare.trace.onnx_run import OnnxRun
from dort_compare.trace.parts import Parts
from dort_compare.trace.passages import are_same_elements
from dort_compare.trace.replay import Replay, chain_to

MEMORY = 32
"""MiB of torch's values in one window: each is held five times while they are compared."""
_STEPS = 64


@dataclass(frozen=True)
class Executed:
    """A step with what ONNX Runtime computed for it.

    ``onnx_value`` is the name of the ONNX value that stands for it. ``own`` comes of ONNX Runtime's own earlier values,
    ``local`` of torch's, once for each repeat; an error stands where ONNX Runtime cannot run the nodes on those. A step
    that no ONNX value stands for has none, and one whose ONNX value stands for an earlier step that it does not read
    has no ``local``. ``fused`` repeats by torch what ``local`` did, where ONNX nodes of several steps may be one.
    ``shows`` is an operand, by FX name, whose elements torch and ONNX both only show again, if in another shape.
    """

    step: Step
    onnx_value: str | None = None
    own: torch.Tensor | None = None
    local: Sequence[torch.Tensor | ExecutionError] = ()
    fused: Replay | None = None
    shows: str | None = None

    @property
    def replay(self) -> Replay:
        """The step again, by torch, on torch's operands."""
        return self.fused or Replay(self.step.operands)


@dataclass
class _Window:
    steps: list[Step] = field(default_factory=list)
    nbytes: int = 0

    def add(self, step: Step) -> None:
        self.steps.append(step)
        self.nbytes += _nbytes(step)


def executions(
    run: GraphRun,
    stands_for: Mapping[str, str],
    opaque: frozenset[str],
    memory: int = MEMORY,
    repeats: int = 1,
    merged: Collection[str] = (),
) -> Iterator[Executed]:
    """Runs the graph every way and yields its tensors in order, each freed after its last reader.

    ``stands_for`` gives, by FX node, the name of the ONNX value; those of ``opaque`` FX nodes are not torch's numbers,
    and are fed to no one. ``memory`` bounds the MiB of torch's values that are compared at a time, ``repeats`` says
    how often ONNX Runtime computes on torch's operands. ``merged`` are the FX nodes whose ONNX nodes took the place of
    other ones; those of a step that reads what no ONNX value stands for may be of several steps as well.

    Raises ExecutionError where ONNX Runtime cannot run the model.
    """
    parts = Parts(run.onnx_model, run.providers, device_of(run.inputs.values()), run.engine)
    read = {value.name for value in run.onnx_model.graph.input}
    inputs = {name: as_tensor(value) for name, value in run.inputs.items() if name in read}
    in_order = (node.name for node in run.graph_module.graph.nodes if node.op == "call_function")
    plain = {name: stands_for[name] for name in in_order if name in stands_for and name not in opaque}
    own = OnnxRun(parts, inputs, list(plain.values()))
    local = LocalRun(parts, inputs, list(dict.fromkeys(plain.values())))
    first: dict[str, str] = {}
    for window in _windows(run, memory):
        steps = {step.node.name: step for step in window.steps}
        named = {fx_node: plain[fx_node] for fx_node in steps if fx_node in plain}
        made = [name for fx_node, name in named.items() if first.setdefault(name, fx_node) == fx_node]
        for name in made:
            local.give(name, as_tensor(steps[first[name]].value))
        fused = {
            name: _replay(run, steps[first[name]], local.operands(name), first, opaque)
            for name in made
            if first[name] in merged or _reads_unseen(steps[first[name]], stands_for)
        }
        theirs = own.values(list(named.values()))
        alone = local.values(made, repeats)
        for fx_node, step in steps.items():
            if not isinstance(step.value, torch.Tensor):
                continue
            if fx_node not in named:
                yield Executed(step)
                continue
            name = named[fx_node]
            if first[name] == fx_node:
                again = [found[name] for found in alone]
                yield Executed(step, name, theirs[name], again, fused.get(name), _shows(step, plain, parts))
            else:
                before = next((value for read, value in step.operands.items() if plain.get(read) == name), None)
                yield Executed(step, name, theirs[name], [] if before is None else [before])
        del window, steps, step, theirs, alone, fused  # before the next window is made


def _shows(step: Step, stands_for: Mapping[str, str], parts: Parts) -> str | None:
    root = parts.root(stands_for[step.node.name])
    like = (n for n, value in step.operands.items() if isinstance(value, torch.Tensor) and n in stands_for)
    same = (n for n in like if are_same_elements(step.value, step.operands[n]) and parts.root(stands_for[n]) == root)
    return next(same, None)


def _reads_unseen(step: Step, stands_for: Mapping[str, str]) -> bool:
    """Whether a step reads a result that no ONNX value stands for."""
    read = (node.name for node in step.node.all_input_nodes if node.op == "call_function")
    return any(isinstance(step.operands.get(name), torch.Tensor) and name not in stands_for for name in read)


def _replay(
    run: GraphRun,
    step: Step,
    operands: Mapping[str, torch.Tensor],
    stands_for: Mapping[str, str],
    opaque: frozenset[str],
) -> Replay:
    """What leads to a step from the ONNX values ``operands``, graph inputs and torch's values that ONNX cannot have."""
    given: dict[str, Any] = {name: value for name, value in step.operands.items() if name in opaque}
    given |= {**run.inputs, **{stands_for.get(name, name): value for name, value in operands.items()}}
    chain = chain_to(step.node, given)
    read = {operand.name for node in (*chain, step.node) for operand in node.all_input_nodes}
    return Replay({name: value for name, value in given.items() if name in read}, chain)


def _windows(run: GraphRun, memory: int) -> Iterator[_Window]:
    """The steps in windows within ``memory`` MiB, or of one step where that alone takes more."""
    window = _Window()
    for step in lockstep(run.graph_module, list(run.inputs.values())):
        is_full = window.nbytes + _nbytes(step) > memory * 2**20 or len(window.steps) >= _STEPS
        if window.steps and is_full:
            yield window
            window = _Window()
        window.add(step)
        del step
    if window.steps:
        yield window


def _nbytes(step: Step) -> int:
    return step.value.nbytes if isinstance(step.value, torch.Tensor) else 0
