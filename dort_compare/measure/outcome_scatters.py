"""How far right outputs, gradients and updates of the whole model scatter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dort_compare.measure.noise.scatter import Sample, Scatter
from dort_compare.measure.outcome import OutcomeRow
from dort_compare.trace import Outcome

Scatters = Mapping[tuple[str, str], Scatter]
"""By kind and name of an output, gradient or update."""


def outcome_scatters(reference: Outcome, shown: Outcome, sample: Sample, before: Scatters) -> Scatters:
    """``before`` with what one more sample has ``shown`` of the outputs, gradients and updates."""
    found = dict(before)
    both = {
        "output": (reference.outputs, shown.outputs),
        "gradient": (reference.gradients, shown.gradients),
        "update": (reference.updates, shown.left(reference.updates)),
    }
    for kind, (values, others) in both.items():
        for name in values.keys() & others.keys():
            if values[name].shape == others[name].shape:
                scatter = Scatter.of(values[name], others[name], sample)
                found[kind, name] = found.get((kind, name), Scatter()) | scatter
    return found


def settled(rows: Sequence[OutcomeRow], scatters: Scatters) -> tuple[OutcomeRow, ...]:
    """The rows, those ok too that right results scatter as far as."""
    return tuple(_settled(row, scatters.get((row.kind, row.name), Scatter())) for row in rows)


def _settled(row: OutcomeRow, scatter: Scatter) -> OutcomeRow:
    if row.ok or row.distance is None or not scatter.covers(row.distance, row.gaps):
        return row
    return replace(row, ok=True, noise_floor=scatter.floor, gaps=None)
