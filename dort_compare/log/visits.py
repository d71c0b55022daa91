"""The calls of modules that a sequence of FX nodes enters and leaves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from torch import fx

from dort_compare.node_meta import OPERATION, STACK_TRACE, STACKS, stack_of
from dort_compare.provenance import dotted_path

_ORIGINS = (*STACKS, STACK_TRACE, OPERATION)


@dataclass(frozen=True)
class ModuleCall:
    """One call of a module, by its ``key`` in a module stack."""

    key: str
    path: str
    kind: str

    @property
    def number(self) -> int:
        """1 for the first call of the module."""
        return int(self.key.partition("@")[2] or 0) + 1


@dataclass(eq=False)
class Visit:
    """What a graph does between entering a call of a module and leaving it; ``call`` is None for the graph itself.

    One call may be visited several times: backward graphs, and what AOTAutograd has moved, leave it and come back.
    """

    call: ModuleCall | None
    steps: list[Visit | fx.Node] = field(default_factory=list)

    @property
    def own(self) -> list[fx.Node]:
        """The nodes that belong to no module in this one."""
        return [step for step in self.steps if isinstance(step, fx.Node)]

    def nodes(self) -> Iterator[fx.Node]:
        """All nodes, those of the modules in this one included, in order."""
        for step in self.steps:
            yield from step.nodes() if isinstance(step, Visit) else (step,)


def visits(nodes: Iterable[fx.Node]) -> Visit:
    """The nodes, in their order, under the modules whose forward they come from.

    A backward node's module is that of the forward operation that it differentiates. What torch inserts and says
    nothing of, such as the cast of a symbolic number, belongs to the module that reads it.
    """
    in_order = list(nodes)
    places = _places(in_order)
    root = Visit(None)
    entered = [root]
    for node in in_order:
        calls = places[node]
        depth = 0
        while depth < min(len(calls), len(entered) - 1) and entered[depth + 1].call == calls[depth]:
            depth += 1
        del entered[depth + 1 :]
        for call in calls[depth:]:
            visit = Visit(call)
            entered[-1].steps.append(visit)
            entered.append(visit)
        entered[-1].steps.append(node)
    return root


def _places(nodes: Sequence[fx.Node]) -> dict[fx.Node, list[ModuleCall]]:
    places: dict[fx.Node, list[ModuleCall]] = {}
    for node in reversed(nodes):
        readers = [] if any(key in node.meta for key in _ORIGINS) else [user for user in node.users if user in places]
        places[node] = places[readers[0]] if readers else _calls_of(node)
    return places


def _calls_of(node: fx.Node) -> list[ModuleCall]:
    return [ModuleCall(str(key), dotted_path(str(path)), _name(kind)) for key, (path, kind) in stack_of(node).items()]


def _name(kind: object) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind).rpartition(".")[2]
