"""What only shows another value, in whatever shape: told of ONNX values by their nodes, of torch's by their memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from typing import NamedTuple

import onnx
import torch

from dort_compare.trace.schemas import plain_domain

RESHAPES = frozenset(["Reshape", "Squeeze", "Unsqueeze", "Flatten"])
"""Operators that give their first operand another shape, and nothing else."""
_PASSAGES = RESHAPES | {"Identity"}


class Source(NamedTuple):
    """The value that another one shows: one that nodes compute, or are fed."""

    name: str
    is_fed: bool


class Passages:
    """Which of the values that some nodes of a model give only show others, those of ``untensored`` not among them.

    ``nodes`` are by their places in the model; ``apart`` holds, by place, the names that a node is fed although another
    of them makes them.
    """

    def __init__(
        self, nodes: Mapping[int, onnx.NodeProto], untensored: Collection[str], apart: Mapping[int, Set[str]]
    ) -> None:
        self._nodes, self._apart = nodes, apart
        self._makers = {name: i for i, node in nodes.items() for name in node.output if name not in untensored}

    def source(self, name: str) -> Source:
        """The value whose elements, in their order, are those of ``name``; itself where its node computes or moves
        some, or where nodes read one another in a circle."""
        passed: set[int] = set()
        while (i := self._makers.get(name, -1)) >= 0 and i not in passed and (operand := _operand(self._nodes[i])):
            passed.add(i)
            name = operand
            if operand in self._apart.get(i, ()):
                return Source(operand, is_fed=True)
        return Source(name, is_fed=i < 0)


def _operand(node: onnx.NodeProto) -> str:
    """What a node shows; "" where it does more than that."""
    is_passage = not plain_domain(node.domain) and node.op_type in _PASSAGES and node.input
    return str(node.input[0]) if is_passage else ""


def are_same_elements(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are the same memory read in the same order, in whatever shapes."""
    kinds = [(t.dtype, t.device, t.numel(), t.data_ptr(), t.is_neg(), t.is_conj()) for t in (one, other)]
    return kinds[0] == kinds[1] and one.is_contiguous() and other.is_contiguous()
