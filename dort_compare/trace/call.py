"""How a module is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from dort_compare.trace.trees import named_leaves
from dort_compare.trace.wrapped import plain_tensors

Loss = Callable[[Any], torch.Tensor]


@dataclass(frozen=True)
class Call:
    """How a module is called: its arguments, whether gradients are asked for, and under which autocast."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    backward: bool = False
    loss: Loss | None = None
    autocast: torch.dtype | None = None

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The tensors among the arguments."""
        leaves = pytree.tree_leaves((tuple(self.args), dict(self.kwargs)))
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    @property
    def device(self) -> torch.device:
        """That of the first tensor among the arguments."""
        return next((tensor.device for tensor in self.tensors), torch.device("cpu"))


def given(parameters: Mapping[str, torch.Tensor], call: Call) -> dict[str, torch.Tensor]:
    """The parameters, or what they are made of, and the tensors among the arguments, by the names that their gradients
    have."""
    leaves = (*named_leaves(tuple(call.args)), *named_leaves(dict(call.kwargs)))
    arguments = {f"argument{path}": leaf for path, leaf in leaves}
    named = {**parameters, **arguments}.items()
    return dict(plain_tensors((name, value) for name, value in named if isinstance(value, torch.Tensor)))
