"""Nodes of one model on values of another, without those on which they cannot run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from dort_compare.errors import ExecutionError

Tensors = Mapping[str, torch.Tensor]


def run_without_doubted(
    run: Callable[[Tensors], Tensors], fed: Tensors, own: Tensors, shapes: Mapping[str, torch.Size]
) -> tuple[Tensors, Tensors]:
    """What ``run`` makes of ``fed``, and which of it were replaced by the ``own`` values, the doubtful ones.

    None where it runs and its results have their ``shapes``; else the first that mends that, else all if it fails.
    Raises ExecutionError where it fails on the own values too.
    """
    problem, runs = None, None
    for doubted in ({}, *({name: value} for name, value in own.items()), own):
        try:
            found = run({**fed, **doubted})
        except ExecutionError as error:
            problem = problem or error
            continue
        runs = runs or (found, doubted)
        if all(found[name].shape == shape for name, shape in shapes.items()):
            return found, doubted
    if runs is None:
        assert problem is not None
        raise problem
    return runs
