"""What the ONNX nodes of a step read, as torch is to read it where it repeats them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from dort_compare.dtypes import as_held, is_floating_tensor
from dort_compare.trace.graph_run import GraphRun
from dort_compare.trace.local_run import LocalRun
from dort_compare.trace.lockstep import Step
from dort_compare.trace.replay import Replay, chain_to
from dort_compare.trace.stand_ins import StandIns


@dataclass(frozen=True)
class Replays:
    """What the ONNX nodes of the steps of a run read, as its ``stands`` tell, and what torch repeats of each step."""

    run: GraphRun
    local: LocalRun
    stands: StandIns

    def given(self, step: Step) -> Any:
        """The value of a step as ONNX nodes read it."""
        dtype = self.stands.held.get(step.node.name)
        return as_held(step.value, dtype) if dtype and is_floating_tensor(step.value) else step.value

    def replay(self, step: Step, name: str, made: Mapping[str, str]) -> Replay | None:
        """What torch repeats of the step that the ONNX value ``name`` stands for; None where that is the step alone, on
        torch's operands. ``made`` gives the FX nodes of the ONNX values, each that of the first one."""
        if step.node.name in self.stands.merged or self._reads_unseen(step):
            return self._chain(step, name, made)
        coarse = dict(self._coarse(step, name, step.operands))
        if not coarse:
            return None
        is_rounded_again = self.local.goes_in_steps(name) or not coarse.keys() <= self.stands.held.keys()
        between = self.stands.held.get(step.node.name) if is_rounded_again else None
        return Replay(_rounded(step.operands, coarse), between=between, is_rounded=True)

    def _chain(self, step: Step, name: str, made: Mapping[str, str]) -> Replay:
        """What leads to a step from what its ONNX nodes read, graph inputs and torch's values that ONNX cannot have."""
        given: dict[str, Any] = {name: value for name, value in step.operands.items() if name in self.stands.opaque}
        operands = self.local.operands(name)
        given |= {**self.run.inputs, **{made.get(name, name): value for name, value in operands.items()}}
        chain = chain_to(step.node, given)
        read = {operand.name for node in (*chain, step.node) for operand in node.all_input_nodes}
        values = {name: value for name, value in given.items() if name in read}
        coarse = dict(self._coarse(step, name, values))
        between = self.stands.held.get(step.node.name)
        return Replay(_rounded(values, coarse), chain, between=between, is_rounded=bool(coarse))

    def _coarse(self, step: Step, name: str, values: Mapping[str, Any]) -> Iterator[tuple[str, torch.dtype]]:
        """By FX node, the dtypes that the ONNX nodes have values in: those that these are held in, and those to which a
        step that is held so casts all that it reads of a value."""
        if not self.stands.held:
            return
        cast = self.local.cast_to(name) if step.node.name in self.stands.held else {}
        for fx_node, value in values.items():
            dtype = self.stands.held.get(fx_node) or cast.get(self.stands.names.get(fx_node, fx_node))
            if dtype is not None and is_floating_tensor(value):
                yield fx_node, dtype

    def _reads_unseen(self, step: Step) -> bool:
        """Whether a step reads a result that no ONNX value stands for."""
        read = (node.name for node in step.node.all_input_nodes if node.op == "call_function")
        return any(isinstance(step.operands.get(name), torch.Tensor) and name not in self.stands.names for name in read)


def _rounded(values: Mapping[str, Any], coarse: Mapping[str, torch.dtype]) -> dict[str, Any]:
    return {name: as_held(value, coarse[name]) if name in coarse else value for name, value in values.items()}
