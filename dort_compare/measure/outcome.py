"""The compiled model's outputs, gradients and updates against those of the plain, uncompiled one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import nn

from dort_compare.dtypes import HALF, coarsened, coarsest, dtype_name
from dort_compare.errors import UsageError
from dort_compare.measure.distance.distances import Distance, Number
from dort_compare.measure.noise.floor import noise_floor
from dort_compare.measure.noise.gaps import Gaps
from dort_compare.measure.noise.inherited import inherited_error
from dort_compare.measure.rows import json_number
from dort_compare.trace import Outcome
from dort_compare.trace.call import Call

Kind = Literal["output", "gradient", "update"]
"""An update is what the call leaves in a parameter, buffer or argument that either side has changed."""
Exact = Callable[[], Mapping[str, torch.Tensor]]
"""Computes the float64 values."""


@dataclass(frozen=True)
class OutcomeRow:
    """One output, gradient or update that a backend computed. A tensor on one side only has no distance and is never
    ok, but for a gradient of zeros: AOTAutograd computes one where eager leaves none, by what nobody reads.

    The distances from float64 are known where they decide: in half precision, and of what departs without them. The
    ``gaps`` are those of the elements of what is not ok, until it is known how far right results scatter.
    """

    backend: str
    kind: Kind
    name: str
    dtype: str
    shape: tuple[int, ...]
    ok: bool
    distance: Distance | None = None
    noise_floor: float | None = None
    torch_vs_float64: Number | None = None
    onnx_vs_float64: Number | None = None
    gaps: Gaps | None = field(default=None, repr=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        return {
            "backend": self.backend,
            "kind": self.kind,
            "name": self.name,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "ok": self.ok,
            "distance": self.distance.to_json() if self.distance else None,
            "noise_floor": json_number(self.noise_floor),
            "torch_vs_float64": json_number(self.torch_vs_float64),
            "onnx_vs_float64": json_number(self.onnx_vs_float64),
        }


def outcome_rows(
    backend: str,
    kind: Kind,
    eager: Mapping[str, torch.Tensor],
    compiled: Mapping[str, torch.Tensor],
    exact: Exact,
    precision: torch.dtype | None,
) -> list[OutcomeRow]:
    """A row for every tensor of either side.

    ``exact`` computes the float64 values, of those that there are. It is called where a row asks for it: one that
    departs without, or is of half precision, whose noise cannot be told otherwise. ``precision`` is the coarsest dtype
    the model computed in (that of autocast), None for the tensors' own.
    """
    return [
        _row(backend, kind, name, eager.get(name), compiled.get(name), exact, precision)
        for name in {**eager, **compiled}
    ]


def _row(
    backend: str,
    kind: Kind,
    name: str,
    expected: torch.Tensor | None,
    got: torch.Tensor | None,
    exact: Exact,
    precision: torch.dtype | None,
) -> OutcomeRow:
    one = expected if expected is not None else got
    assert one is not None
    row = OutcomeRow(backend, kind, name, dtype_name(one.dtype), tuple(one.shape), ok=False)
    if expected is None or got is None:
        if kind != "gradient" or got is None or one.any():
            return row
        expected = got = one
    coarse = coarsened(expected.dtype, precision)
    if coarse not in HALF:
        without = _measured(row, expected, got, None, coarse)
        if without.ok:
            return without
    return _measured(row, expected, got, exact().get(name), coarse)


def _measured(
    row: OutcomeRow, expected: torch.Tensor, got: torch.Tensor, exact: torch.Tensor | None, coarse: torch.dtype | None
) -> OutcomeRow:
    floor = partial(noise_floor, coarse, numel=expected.numel())
    error = inherited_error(expected, got, floor, coarse, exact)
    return replace(
        row,
        ok=error.is_noise,
        gaps=None if error.is_noise or expected.shape != got.shape else error.gaps(expected, got, floor),
        distance=error.distance.between("eager", "compiled"),
        noise_floor=error.noise_floor,
        torch_vs_float64=error.expected_vs_float64,
        onnx_vs_float64=error.got_vs_float64,
    )


def outcome_of(
    backend: str, eager: Outcome, compiled: Outcome, exact: Callable[[], Outcome], precision: torch.dtype | None
) -> tuple[OutcomeRow, ...]:
    """Rows for what a backend computed; ``precision`` is that of ``precision_of``."""
    changed = {**eager.updates, **compiled.updates}
    left, found = eager.left(changed), compiled.left(changed)
    return (
        *outcome_rows(backend, "output", eager.outputs, compiled.outputs, lambda: exact().outputs, precision),
        *outcome_rows(backend, "gradient", eager.gradients, compiled.gradients, lambda: exact().gradients, precision),
        *outcome_rows(backend, "update", left, found, lambda: exact().updates, precision),
    )


def precision_of(model: nn.Module, call: Call) -> torch.dtype | None:
    """The coarsest dtype of autocast, parameters, buffers and arguments."""
    dtypes = [tensor.dtype for tensor in (*model.parameters(), *model.buffers(), *call.tensors)]
    return coarsest([*dtypes, call.autocast] if call.autocast else dtypes)


def refuse_chance(eager: Outcome, compiled: Outcome, precision: torch.dtype | None, run: Callable[[], Outcome]) -> None:
    """Raises UsageError where an output departs that is another when ``run`` runs eager again.

    Float64, a further run, would be no measure of noise then.
    """
    if not _like(eager, compiled, precision) and not _like(eager, run(), torch.bfloat16):
        raise UsageError(
            "the model returns something else each time that it runs in eager torch: nothing can be held against it; "
            "let it keep no count between calls, nor draw from generators of its own or call torch.seed()"
        )


def _like(eager: Outcome, other: Outcome, precision: torch.dtype | None) -> bool:
    return all(row.ok for row in outcome_rows("", "output", eager.outputs, other.outputs, dict, precision))
