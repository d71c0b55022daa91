"""The four executions of a graph, in windows of a few values: torch, float64, ONNX, and ONNX on torch's operands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from dort_compare.dtypes import as_held, is_coarser
from dort_compare.errors import ExecutionError
from dort_compare.randomness import draws
from dort_compare.runtime.binding import device_of
from dort_compare.scalars import as_fed
from dort_compare.trace.casts import cast_to
from dort_compare.trace.graph_run import GraphRun
from dort_compare.trace.local_run import LocalRun
from dort_compare.trace.lockstep import Step, lockstep
from dort_compare.trace.onnx_run import OnnxRun
from dort_compare.trace.parts import Parts
from dort_compare.trace.passages import are_same_elements
from dort_compare.trace.replay import Replay
from dort_compare.trace.replays import Replays
from dort_compare.trace.stand_ins import StandIns

MEMORY = 32
"""MiB of torch's values in one window: each is held five times while they are compared."""
_STEPS = 64


@dataclass(frozen=True)
class Executed:
    """A step with what ONNX Runtime computed for it.

    ``onnx_value`` is the name of the ONNX value that stands for it. ``own`` comes of ONNX Runtime's own earlier values,
    ``local`` of torch's, once for each repeat; an error stands where ONNX Runtime cannot run the nodes on those. A step
    that no ONNX value stands for has none, and one whose ONNX value stands for an earlier step that it does not read
    has no ``local``. ``again`` repeats by torch what ``local`` did, where that is not the step alone on torch's
    operands: ONNX nodes of several steps may be one, or operands are held in a coarser dtype; what torch makes of these
    is ``expected`` then. ``shows`` is an operand, by FX name, whose elements torch and ONNX both only show again, if in
    another shape.
    """

    step: Step
    onnx_value: str | None = None
    own: torch.Tensor | None = None
    local: Sequence[torch.Tensor | ExecutionError] = ()
    again: Replay | None = None
    expected: torch.Tensor | None = None
    shows: str | None = None

    @property
    def reference(self) -> torch.Tensor:
        """What torch makes of the operands that ``local`` has."""
        return self.step.value if self.expected is None else self.expected

    @property
    def replay(self) -> Replay:
        """The step again, by torch, on torch's operands."""
        return self.again or Replay(self.step.operands)


@dataclass
class _Window:
    steps: list[Step] = field(default_factory=list)
    nbytes: int = 0

    def add(self, step: Step) -> None:
        self.steps.append(step)
        self.nbytes += _nbytes(step)


def executions(run: GraphRun, stand_ins: StandIns, memory: int = MEMORY, repeats: int = 1) -> Iterator[Executed]:
    """Runs the graph every way and yields its tensors in order, each freed after its last reader.

    ``memory`` bounds the MiB of torch's values that are compared at a time, ``repeats`` says how often ONNX Runtime
    computes on torch's operands. The ONNX nodes of a step that reads what no ONNX value stands for may be of several
    steps, as those of ``stand_ins`` are that are merged.

    Raises ExecutionError where ONNX Runtime cannot run the model.
    """
    parts = Parts(run.onnx_model, run.providers, device_of(run.inputs.values()), run.engine)
    read = {value.name for value in run.onnx_model.graph.input}
    inputs = {name: as_fed(value) for name, value in run.inputs.items() if name in read}
    in_order = (node.name for node in run.graph_module.graph.nodes if node.op == "call_function")
    names = stand_ins.names
    plain = {name: names[name] for name in in_order if name in names and name not in stand_ins.opaque}
    own = OnnxRun(parts, inputs, list(plain.values()))
    if stand_ins.held:
        stand_ins = replace(stand_ins, held={**stand_ins.held, **_coarse_inputs(parts, inputs)})
    held = stand_ins.held
    rounded = {name: as_held(value, held[name]) if name in held else value for name, value in inputs.items()}
    local = LocalRun(parts, rounded, list(dict.fromkeys(plain.values())))
    first: dict[str, str] = {}
    replays = Replays(run, local, stand_ins)
    for window in _windows(run, memory):
        steps = {step.node.name: step for step in window.steps}
        named = {fx_node: plain[fx_node] for fx_node in steps if fx_node in plain}
        made = [name for fx_node, name in named.items() if first.setdefault(name, fx_node) == fx_node]
        for name in made:
            local.give(name, as_fed(replays.given(steps[first[name]])))
        again = {name: replays.replay(steps[first[name]], name, first) for name in made}
        theirs = own.values(list(named.values()))
        alone = local.values(made, repeats)
        for fx_node, step in steps.items():
            name = named.get(fx_node, "")
            runs = [found[name] for found in alone] if first.get(name) == fx_node else None
            executed = _executed(step, name, theirs.get(name), runs, again.get(name), plain, parts)
            if executed is not None:
                yield executed
        del window, steps, step, theirs, alone, again, runs, executed  # before the next window is made


def _executed(
    step: Step,
    name: str,
    own: torch.Tensor | None,
    runs: Sequence[torch.Tensor | ExecutionError] | None,
    again: Replay | None,
    stands_for: Mapping[str, str],
    parts: Parts,
) -> Executed | None:
    """A step with its ONNX value, whose ``name`` is "" where there is none; None for a number that is right.

    ``runs`` are those on torch's operands; None where the value stands for an earlier step.
    """
    if not isinstance(step.value, torch.Tensor):
        return None if runs is None else _wrong_number(Executed(step, name, own, runs))
    if not name:
        return Executed(step)
    if runs is not None:
        return Executed(step, name, own, runs, again, _expected(step, again), _shows(step, stands_for, parts))
    before = next((value for read, value in step.operands.items() if stands_for.get(read) == name), None)
    return Executed(step, name, own, [] if before is None else [before])


def _wrong_number(executed: Executed) -> Executed | None:
    """A number that torch has made symbolic, as a 0-d tensor, where ONNX Runtime has another; sizes that are right are
    no values of the model."""
    step, expected = executed.step, as_fed(executed.step.value)
    own = None if executed.own is None else executed.own.cpu()
    local = [each.cpu() if isinstance(each, torch.Tensor) else each for each in executed.local]
    if all(_is_number(each, expected) for each in (own, *local)):
        return None
    number = replace(step, value=expected, exact=as_fed(step.exact))
    return replace(executed, step=number, own=own, local=local)


def _is_number(held: object, expected: torch.Tensor) -> bool:
    return isinstance(held, torch.Tensor) and held.dtype == expected.dtype and torch.equal(held, expected)


def _coarse_inputs(parts: Parts, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.dtype]:
    """The coarser dtypes that a model casts inputs to and does no more with them.

    ONNX Runtime may drop such a cast to float16, where it casts back to float32 for a kernel.
    """
    casts = cast_to(zip(parts.nodes, parts.reads, strict=True))
    return {
        name: casts[name] for name, value in inputs.items() if name in casts and is_coarser(casts[name], value.dtype)
    }


def _shows(step: Step, stands_for: Mapping[str, str], parts: Parts) -> str | None:
    root = parts.root(stands_for[step.node.name])
    like = (n for n, value in step.operands.items() if isinstance(value, torch.Tensor) and n in stands_for)
    same = (n for n in like if are_same_elements(step.value, step.operands[n]) and parts.root(stands_for[n]) == root)
    return next(same, None)


def _expected(step: Step, again: Replay | None) -> torch.Tensor | None:
    """What torch makes of operands that are held in a coarser dtype; None where none is, and of what is drawn."""
    return again.value(step.node) if again is not None and again.is_rounded and not draws(step.node.target) else None


def _windows(run: GraphRun, memory: int) -> Iterator[_Window]:
    """The steps in windows within ``memory`` MiB, or of one step where that alone takes more.

    A window that has no room for more is passed on before torch computes the next step.
    """
    window = _Window()
    for step in lockstep(run.graph_module, list(run.inputs.values())):
        if window.steps and window.nbytes + _nbytes(step) > memory * 2**20:
            yield window
            window = _Window()
        window.add(step)
        del step
        if window.nbytes >= memory * 2**20 or len(window.steps) >= _STEPS:
            yield window
            window = _Window()
    if window.steps:
        yield window


def _nbytes(step: Step) -> int:
    return step.value.nbytes if isinstance(step.value, torch.Tensor) else 0
