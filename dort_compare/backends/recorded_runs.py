"""What the debug backend remembers of a graph, and of the inputs of its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx
import onnx_ir as ir
import torch
from torch import fx

from dort_compare.errors import StaleRecordError
from dort_compare.lowering.lowered import Lowered
from dort_compare.provenance import Phase
from dort_compare.runtime import Program
from dort_compare.runtime.program import Argument
from dort_compare.scalars import as_tensor
from dort_compare.signature import Signature
from dort_compare.writes import Taken, count_fused_steps, may_be_statistics


class Run:
    """The inputs of one run of one graph.

    What the caller owns (parameters, buffers, arguments) is copied, once for as long as it does not change: an
    optimizer writes it in place. What only the graphs see (saved activations and tangents of a backward graph) is kept
    by reference. ``number`` counts the recorded runs of all graphs of this process: they tell in which
    order graphs of several backends ran.
    """

    def __init__(
        self,
        signature: Signature,
        phase: Phase,
        arguments: Sequence[Argument],
        previous: Run | None = None,
        number: int = 0,
    ) -> None:
        count_fused_steps()
        self.number = number
        self._sources: dict[str, Taken[Argument]] = {}
        self._taken: dict[str, Taken[Argument]] = {}
        for graph_input, argument in zip(signature.inputs, arguments, strict=True):
            if phase == "backward" and not graph_input.name.startswith("primals"):
                self._taken[graph_input.name] = Taken(argument)
            else:
                self._taken[graph_input.name] = self._copied(graph_input.name, argument, previous)

    @property
    def inputs(self) -> tuple[Argument, ...]:
        """The arguments of the run, in the order of the graph's inputs: tensors, and integers for symbolic sizes.

        Raises StaleRecordError where one that is kept by reference has been written in place since.
        """
        for name, taken in self._taken.items():
            if not taken.is_unwritten:
                raise StaleRecordError(
                    f"graph input {name} was changed in place after this run was recorded; read it before that"
                )
        return tuple(taken.value for taken in self._taken.values())

    @property
    def sources(self) -> Mapping[str, Argument]:
        """By the names of inputs that were copied, what the caller gave: its own parameters and arguments."""
        return {name: source.value for name, source in self._sources.items()}

    def _copied(self, name: str, argument: Argument, previous: Run | None) -> Taken[Argument]:
        """A copy of the argument; the previous run's, where the argument is the same and has not been written since."""
        self._sources[name] = Taken(argument)
        before = previous._sources.get(name) if previous else None
        is_counted = not isinstance(argument, torch.Tensor) or not may_be_statistics(argument)
        is_same = before is not None and before.value is argument and before.is_counted and before.is_unwritten
        if previous and is_same and is_counted:
            return previous._taken[name]
        copy = argument.detach().clone() if isinstance(argument, torch.Tensor) else argument
        return Taken(copy)


class Results:
    """What one run computed, by the names of the ONNX model's outputs, kept by reference."""

    def __init__(self, computed: Mapping[str, torch.Tensor]) -> None:
        self._kept = {name: Taken(value) for name, value in computed.items()}

    def values(self) -> dict[str, torch.Tensor] | None:
        """The tensors; None where one may have been written in place since, as far as torch has seen it."""
        if not all(kept.is_counted and kept.is_unwritten for kept in self._kept.values()):
            return None
        return {name: as_tensor(kept.value) for name, kept in self._kept.items()}


@dataclass(frozen=True)
class GraphId:
    """Which graph: its number in the order of compilation, its phase, and torch's id of the compilation ("0/1")."""

    index: int
    phase: Phase
    compile_id: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"graph": self.index, "phase": self.phase, "compile_id": self.compile_id}


@dataclass(frozen=True)
class ComparedGraph(GraphId):
    """Which graph, how often it ran, of how many runs, from the first, the inputs were kept, and how many of these were
    compared: none from the first on of which an input has been written in place since."""

    ran: int = 1
    recorded: int = 1
    compared: int = 1

    @classmethod
    def of(cls, graph: CompiledGraph, compared: int) -> ComparedGraph:
        return cls(graph.index, graph.phase, graph.compile_id, graph.ran, len(graph.runs), compared)

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "ran": self.ran, "recorded": self.recorded, "compared": self.compared}


@dataclass(frozen=True, eq=False)
class TracedGraph:
    """A graph as AOTAutograd traced it, whole, whatever pieces it runs in."""

    phase: Phase
    compile_id: str | None
    graph_module: fx.GraphModule


@dataclass
class CompiledGraph:
    """One graph that was compiled: FX, ONNX, and the inputs of its first ``max_runs`` runs.

    ``traced`` is the graph that it is, or of which it is a piece, whose names of nodes it has; ``ran`` counts all runs.
    """

    id: GraphId
    graph_module: fx.GraphModule
    lowered: Lowered
    program: Program
    max_runs: int
    traced: TracedGraph
    runs: list[Run] = field(default_factory=list)
    ran: int = 0

    @property
    def index(self) -> int:
        return self.id.index

    @property
    def phase(self) -> Phase:
        return self.id.phase

    @property
    def compile_id(self) -> str | None:
        return self.id.compile_id

    @property
    def is_piece(self) -> bool:
        return self.graph_module is not self.traced.graph_module

    @property
    def onnx_model(self) -> onnx.ModelProto:
        """The model that ONNX Runtime executes."""
        return ir.to_proto(self.program.model)

    @property
    def signature(self) -> Signature:
        return self.lowered.signature

    def record(self, arguments: Sequence[Argument], number: int) -> bool:
        """Keeps the inputs of a run, while fewer than ``max_runs`` are kept; says whether it was the first."""
        self.ran += 1
        if len(self.runs) < self.max_runs:
            previous = self.runs[-1] if self.runs else None
            self.runs.append(Run(self.signature, self.phase, arguments, previous, number))
            return previous is None
        return False

    def named_inputs(self, run: int = 0) -> Mapping[str, Argument]:
        """The inputs of a recorded run by the names of the graph's inputs."""
        return dict(zip((i.name for i in self.signature.inputs), self.runs[run].inputs, strict=True))
