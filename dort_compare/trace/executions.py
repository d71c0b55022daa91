"""The four executions of a graph, in windows of a few values: torch, float64, ONNX, and ONNX on torch's operands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from dort_compare.errors import ExecutionError
from dort_compare.scalars import as_tensor
from dort_compare.trace.graph_run import GraphRun
from dort_compare.trace.local_run import LocalRun
from dort_compare.trace.lockstep import Step, lockstep
from dort_compare.trace.onnx_run import OnnxRun
from dort_compare.trace.parts import Parts

MEMORY = 2**26
"""Bytes of torch's values in one window: each is held five times while they are compared."""
_STEPS = 64


@dataclass(frozen=True)
class Executed:
    """A step with what ONNX Runtime computed for it.

    ``own`` comes of ONNX Runtime's own earlier values, ``local`` of torch's, once for each repeat; an error stands
    where ONNX Runtime cannot run the nodes on those. A step that no ONNX value stands for has none, and one whose
    ONNX value stands for an earlier step that it does not read has no ``local``.
    """

    step: Step
    own: torch.Tensor | None = None
    local: Sequence[torch.Tensor | ExecutionError] = ()


@dataclass
class _Window:
    steps: list[Step] = field(default_factory=list)
    nbytes: int = 0

    def add(self, step: Step) -> None:
        self.steps.append(step)
        self.nbytes += step.value.nbytes if isinstance(step.value, torch.Tensor) else 0


def executions(
    run: GraphRun, stands_for: Mapping[str, str], opaque: frozenset[str], memory: int = MEMORY, repeats: int = 1
) -> Iterator[Executed]:
    """Runs the graph every way and yields its tensors in order, each freed after its last reader.

    ``stands_for`` gives, by FX node, the name of the ONNX value; those of ``opaque`` FX nodes are not torch's numbers,
    and are fed to no one. ``memory`` bounds the bytes of torch's values that are compared at a time, ``repeats`` says
    how often ONNX Runtime computes on torch's operands.

    Raises ExecutionError where ONNX Runtime cannot run the model.
    """
    tensors = (value for value in run.inputs.values() if isinstance(value, torch.Tensor))
    device = next((t.device for t in tensors if t.device.type == "cuda"), torch.device("cpu"))
    parts = Parts(run.onnx_model, run.providers, device)
    read = {value.name for value in run.onnx_model.graph.input}
    inputs = {name: as_tensor(value) for name, value in run.inputs.items() if name in read}
    plain = {fx_node: name for fx_node, name in stands_for.items() if fx_node not in opaque}
    own = OnnxRun(parts, inputs, list(plain.values()))
    local = LocalRun(parts, inputs, list(dict.fromkeys(plain.values())))
    first: dict[str, str] = {}
    for window in _windows(run, memory):
        steps = {step.node.name: step for step in window.steps}
        named = {fx_node: plain[fx_node] for fx_node in steps if fx_node in plain}
        made = [name for fx_node, name in named.items() if first.setdefault(name, fx_node) == fx_node]
        for name in made:
            local.give(name, as_tensor(steps[first[name]].value))
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
                yield Executed(step, theirs[name], [found[name] for found in alone])
            else:
                before = step.operands.get(first[name])
                yield Executed(step, theirs[name], [] if before is None else [before])
        del window, steps, step, theirs, alone  # before the next window is made


def _windows(run: GraphRun, memory: int) -> Iterator[_Window]:
    window = _Window()
    for step in lockstep(run.graph_module, list(run.inputs.values())):
        window.add(step)
        del step
        if window.nbytes >= memory or len(window.steps) >= _STEPS:
            yield window
            window = _Window()
    if window.steps:
        yield window
