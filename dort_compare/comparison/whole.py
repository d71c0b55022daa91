"""The outputs and gradients of the whole model, and the results of its modules."""

from __future__ import annotations

from collections.abc import Sequence

from dort_compare.measure.before_onnx.departure import first_departure
from dort_compare.measure.before_onnx.tracing import Tracing
from dort_compare.measure.found import Whole
from dort_compare.measure.outcome import OutcomeRow
from dort_compare.measure.outcome_scatters import settled
from dort_compare.report.progress import SCATTER, Waiting


def whole(
    outputs: Sequence[OutcomeRow],
    traced: Sequence[OutcomeRow],
    tracing: Tracing,
    asking: Sequence[OutcomeRow],
    waiting: Waiting,
) -> Whole:
    """Settles what rounding scatters as far: of the ``outputs`` by all backends, the ``traced`` ones and the modules.

    Samples are drawn for those ``asking`` and for the traced ones; what has a cause already need not ask.
    """
    if all(row.ok for row in traced):
        tracing.settle_unread()
    waiting.stage(SCATTER)
    scatters = tracing.scatters((*asking, *traced))
    traced = settled(traced, scatters)
    modules = tracing.rows(traced)
    return Whole(settled(outputs, scatters), modules, first_departure(modules, traced))
