"""One of two models to be paired: its values with their sketches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch

from dort_compare.align.content import Sketch
from dort_compare.align.orders import Order, followed
from dort_compare.dtypes import HALF
from dort_compare.layouts import inverse
from dort_compare.trace.dataflow import Dataflow, Node


@dataclass(frozen=True, eq=False)
class Side:
    """A model and what one execution of it left: a sketch of every numeric tensor, constants and inputs included.

    ``orders`` are those of the values that the other model holds with their dimensions in another order: they are
    sketched, and shown, as it has them.
    """

    flow: Dataflow
    sketches: Mapping[str, Sketch]
    orders: Mapping[str, Order] = field(default_factory=dict)

    def shown(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """What the model holds as ``name``, with its dimensions as the other model has them."""
        return tensor.permute(self.orders[name]) if name in self.orders else tensor

    def held(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """What is shown as ``name``, with its dimensions as the model holds it."""
        return tensor.permute(inverse(self.orders[name])).contiguous() if name in self.orders else tensor

    def shape(self, name: str) -> tuple[int, ...]:
        """As the model holds it."""
        shape = self.sketches[name].shape
        return followed(shape, inverse(self.orders[name])) if name in self.orders else shape

    def tells_dimensions(self, name: str) -> bool:
        """Whether a constant may be of axes or sizes of a value that is shown in another order than it is held in."""
        if name not in self.flow.constants or not self.sketches[name].is_small_integer:
            return False
        return any(operand in self.orders for node, _ in self.flow.readers.get(name, ()) for operand in node.operands)

    def values(self) -> Iterable[str]:
        """Every value that has a sketch: inputs, constants, results in order of execution."""
        return (name for name in self.flow.values() if name in self.sketches)

    def node(self, name: str) -> Node | None:
        """What makes a value; None for inputs and constants."""
        return self.flow.producer[name][0] if name in self.flow.producer else None

    def made_at(self, name: str) -> int:
        """The number of the node that makes a value; -1 for inputs and constants."""
        node = self.node(name)
        return node.index if node else -1

    def holding(self, name: str) -> list[str]:
        """The values that hold the same as one, itself included."""
        exact = self.sketches[name].exact
        return [other for other, sketch in self.sketches.items() if sketch.exact == exact]

    def op_type(self, name: str) -> str:
        node = self.node(name)
        return node.proto.op_type if node else ""

    def halves(self) -> frozenset[str]:
        """The values that went through a half-precision dtype."""
        found = {name for name, sketch in self.sketches.items() if sketch.dtype in HALF}
        for node in self.flow.nodes:
            if any(name in found for name in node.operands):
                found.update(node.results)
        return frozenset(found)
