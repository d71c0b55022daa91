"""How far one tensor lies from another: exact for integers, as in float64 for floats, never broadcast, by blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from dort_compare.measure.distance.blocks import Floats, Workspace, blocks, finite_extent
from dort_compare.measure.distance.distances import Distance, Number
from dort_compare.measure.distance.tally import Tally


@dataclass(frozen=True)
class Measured:
    """The distances from `expected` of what ONNX made of its own earlier values and (None: not given) of the
    reference's operands, and max |exact - value| of `expected` and of the former (None: not given, or no float).
    `shape` is that of `expected`."""

    shape: tuple[int, ...]
    inherited: Distance
    local: Distance | None
    torch_vs_float64: Number | None
    onnx_vs_float64: Number | None

    def between(self, expected: str, got: str) -> Measured:
        """The same with these names of the sides in what was found."""
        local = None if self.local is None else self.local.between(expected, got)
        return replace(self, inherited=self.inherited.between(expected, got), local=local)

    def shown(self, shape: tuple[int, ...]) -> Measured:
        """What would be measured of the same elements in another shape, if the reference's operands give equal ones."""
        whole, worst = self.inherited, self.inherited.worst
        if worst is not None:
            place = np.ravel_multi_index(worst, self.shape) if worst else 0
            whole = replace(whole, worst=tuple(map(int, np.unravel_index(place, shape))))
        local = Distance.of_equal(whole.numel, whole.numbers, whole.scale or 0)
        return Measured(shape, whole, local, self.torch_vs_float64, self.onnx_vs_float64)


def distance(expected: torch.Tensor, got: torch.Tensor) -> Distance:
    """Measure how far `got` lies from `expected`; see `Distance`.

    Tensors on two devices are compared on the CPU. Two dtypes are a finding, and are measured in int64 if both are
    integers, else in float64 or complex128.
    """
    if expected.shape != got.shape:
        finding = f"shape {tuple(got.shape)} instead of {tuple(expected.shape)}"
        return Distance(equal=False, finding=finding, numel=expected.numel())
    expected, got = _on_one_device([expected, got])
    if not _share_an_integer_type(expected.dtype, got.dtype):
        return _of_floats(expected, [got])[0][0]
    tally = Tally()
    for start, (expected_block, got_block) in blocks([expected, got]):
        tally.add_integers(start, expected_block.reshape(-1), got_block.reshape(-1))
    return tally.distance(expected, got)


def deviation(exact: torch.Tensor, value: torch.Tensor) -> float:
    """max |exact - value| over the finite pairs of two floating tensors, in float64, and nothing besides.

    A fraction of the passes that `distance` makes. Raises ValueError if the shapes differ.
    """
    if exact.shape != value.shape:
        raise ValueError(f"no deviation of shape {tuple(value.shape)} from {tuple(exact.shape)}")
    exact, value = _on_one_device([exact, value])
    workspace = Workspace.of(exact)
    largest = 0.0
    for _, (exact_block, block) in blocks([exact, value]):
        referee = Floats(exact_block, "exact", workspace, torch.float64)
        largest = max(largest, _error(referee, Floats(block, "value", workspace, torch.float64), workspace))
    return largest


def measure(
    expected: torch.Tensor, own: torch.Tensor, local: torch.Tensor | None = None, exact: torch.Tensor | None = None
) -> Measured:
    """Measure all that is asked of one value, in one sweep where the tensors are floating and of one shape.

    The numbers are those of `distance` and `deviation`.
    """
    others = [own] if local is None else [own, local]
    if exact is not None and not all(t.is_floating_point() for t in (exact, expected, own)):
        exact = None
    given = [expected, *others] if exact is None else [expected, *others, exact]
    if all(tensor.shape == expected.shape and tensor.is_floating_point() for tensor in given):
        found, errors = _of_floats(expected, others, exact)
    else:
        found = [distance(expected, other) for other in others]
        errors = [
            None if exact is None or exact.shape != value.shape else deviation(exact, value)
            for value in (expected, own)
        ]
    return Measured(tuple(expected.shape), found[0], found[1] if len(found) > 1 else None, errors[0], errors[1])


def _of_floats(
    expected: torch.Tensor, others: Sequence[torch.Tensor], exact: torch.Tensor | None = None
) -> tuple[list[Distance], list[Number | None]]:
    """The distances of the others, and how far `expected` and the first of them deviate from `exact`."""
    dtype = torch.complex128 if any(t.is_complex() for t in (expected, *others)) else torch.float64
    tensors = _on_one_device([expected, *others] if exact is None else [expected, *others, exact])
    workspace = Workspace.of(tensors[0])
    tallies = [Tally() for _ in others]
    torch_error, onnx_error = 0.0, 0.0
    for start, parts in blocks(tensors):
        reference = Floats(parts[0], "expected", workspace, dtype)
        referee = None if exact is None else Floats(parts[-1], "exact", workspace, dtype)
        error = 0.0 if referee is None else _error(referee, reference, workspace)
        torch_error = max(torch_error, error)
        for i, tally in enumerate(tallies):
            other = Floats(parts[1 + i], "got", workspace, dtype)
            same = tally.add_floats(start, reference, other, workspace)
            if i == 0 and referee is not None:
                onnx_error = max(onnx_error, error if same else _error(referee, other, workspace))
    found = [tally.distance(expected, other) for tally, other in zip(tallies, others, strict=True)]
    return found, [None, None] if exact is None else [torch_error, onnx_error]


def _error(exact: Floats, value: Floats, workspace: Workspace) -> float:
    return finite_extent(workspace.gap(exact.wide, value.exact))


def _on_one_device(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    if len({tensor.device for tensor in tensors}) == 1:
        return [tensor.detach() for tensor in tensors]
    return [tensor.detach().cpu() for tensor in tensors]


def _share_an_integer_type(expected: torch.dtype, got: torch.dtype) -> bool:
    if expected == got:
        return _is_integer(expected)
    return all(_is_integer(dtype) and dtype != torch.uint64 for dtype in (expected, got))


def _is_integer(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex)
