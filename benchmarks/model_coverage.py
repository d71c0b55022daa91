"""The model table: a member of every family, compiled forward and backward, held against eager and float64."""

from __future__ import annotations

from collections import Counter
from typing import Any

from dort_compare import DortError, compare
from dort_compare.measure.outcome import OutcomeRow
from dort_compare.models.families import FAMILIES, build_family


def family_names() -> list[str]:
    """The families, in the order of the table."""
    return list(FAMILIES)


def measure_family(family: str) -> dict[str, Any]:
    """``values``: FX values compared; ``fallen_back``: calls of each op that ran in eager torch; ``worst``: the largest
    distance from eager, relative to the tensor's largest element, of outputs and of gradients.
    """
    model, args, kwargs = build_family(family)
    try:
        report = compare(model, args, kwargs, backward=True)
    except DortError as error:
        return {"verdict": str(error)}
    worst = {"output": 0.0, "gradient": 0.0}
    for row in report.outputs:
        if row.kind not in worst or _is_noise_in_eager(row):
            continue
        worst[row.kind] = max(worst[row.kind], float(row.distance.max_rel) if row.distance else float("inf"))
    return {
        "verdict": report.verdict,
        "values": sum(row.status != "unaligned" for row in report.rows),
        "fallen_back": Counter(fallback.target for fallback in report.fallbacks),
        "worst": worst,
    }


def _is_noise_in_eager(row: OutcomeRow) -> bool:
    """Whether eager torch itself holds less than a digit: a gradient that cancels to nothing has no relative error."""
    if row.distance is None or not row.distance.scale or row.torch_vs_float64 is None:
        return False
    return float(row.torch_vs_float64) > 0.1 * float(row.distance.scale)
