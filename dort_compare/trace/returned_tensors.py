"""The tensors in what a module returns, by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch

from dort_compare.errors import UsageError
from dort_compare.scalars import as_tensor
from dort_compare.trace.refused_modules import refuse_foreign
from dort_compare.trace.trees import named_leaves


def named_tensors(result: Any) -> dict[str, torch.Tensor]:
    """The tensors, what is sparse made dense, by path; "output" for a result that is one.

    Raises UsageError where there is none, or one that is not compared.
    """
    named = {name or "output": to_dense(tensor) for name, tensor in _tensors(result)}
    refuse_foreign(named.values(), "an output")
    if not named:
        raise UsageError(
            f"the model returned a {type(result).__name__}, in which no tensor is found; have it return tensors, in "
            "tuples, lists, dicts or dataclasses if need be"
        )
    return named


def _tensors(result: Any, within: tuple[int, ...] = ()) -> Iterator[tuple[str, torch.Tensor]]:
    """By path, also those in dataclasses that pytree does not know, and numbers as tensors of no dimension; ``within``
    are the ids of the dataclasses around it."""
    for name, leaf in named_leaves(result):
        if isinstance(leaf, torch.Tensor):
            yield name, leaf
        elif (number := _as_tensor(leaf)) is not None:
            yield name, number
        elif is_dataclass(leaf) and not isinstance(leaf, type) and id(leaf) not in within:
            for each in fields(leaf):
                inner = _tensors(getattr(leaf, each.name, None), (*within, id(leaf)))
                yield from ((f"{name}.{each.name}{rest}", tensor) for rest, tensor in inner)


def _as_tensor(leaf: Any) -> torch.Tensor | None:
    """A number of Python's or numpy's as a tensor of no dimension, an integer beyond int64 in float64; else None."""
    number = leaf.item() if isinstance(leaf, np.generic) else leaf
    if isinstance(number, int) and not -(2**63) <= number < 2**63:
        number = float(number)
    if isinstance(number, complex):
        return torch.tensor(number, dtype=torch.complex128, device="cpu")
    return as_tensor(number) if isinstance(number, (bool, int, float)) else None


def to_dense(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, with memory of its own if it is sparse."""
    return tensor if torch._C._has_storage(tensor) else tensor.to_dense()
