"""The result of a comparison of two ONNX models, and its forms: text, JSON and a page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dort_compare.files import write
from dort_compare.measure.diff.value_rows import ValueRow
from dort_compare.measure.diff.verdict import Cause, Findings, Unpaired
from dort_compare.measure.divergence import Judgement
from dort_compare.plain import readable
from dort_compare.report.tables import max_abs, new_table, number, rendered, shape_text
from dort_compare.report.wording import tally

SCHEMA = 1
_SHOWN = 5
_WORDS = {
    "equal": "equal",
    "noise": "within rounding",
    "inherits": "inherit a difference",
    "diverges": "diverge",
    "random": "drawn at random",
}
_KINDS = {
    "a step on the way": "steps where the other has other steps",
    "a step on other numbers": "steps on other numbers",
    "a constant of other numbers": "constants of other numbers",
}
"""By the beginning of a reason, the reason without names."""


@dataclass(frozen=True)
class Diff:
    """What a comparison of two ONNX models found.

    Attributes:
        verdict: "agree" or "diverge".
        first_divergence: None, or the first value of the second model, in order of execution, that departs on the first
            one's operands.
        rows: one for each pair.
        unpaired: values of either model without a partner.
        inputs: where the inputs came from.
    """

    findings: Findings
    inputs: tuple[str, ...]

    @property
    def verdict(self) -> Judgement:
        return self.findings.verdict

    @property
    def first_divergence(self) -> Cause | None:
        return self.findings.causes[0] if self.findings.causes else None

    @property
    def unpaired(self) -> tuple[Unpaired, ...]:
        return self.findings.unpaired

    @property
    def rows(self) -> tuple[ValueRow, ...]:
        return self.findings.rows

    def __str__(self) -> str:
        return self.text()

    def text(self, *, everything: bool = False) -> str:
        """The verdict, the causes, the counts; with ``everything``, every pair and every value without one."""
        return "\n".join(_lines(self, everything))

    def as_json(self) -> dict[str, Any]:
        """As strict JSON, infinity as the string "inf"."""
        found = self.findings
        return {
            "schema": SCHEMA,
            "verdict": found.verdict,
            "reason": found.reason,
            "models": list(found.titles),
            "inputs": list(self.inputs),
            "causes": [cause.to_json() for cause in found.causes],
            "rows": [row.to_json() for row in found.rows],
            "unpaired": [vars(value) for value in found.unpaired],
            "notes": list(found.notes),
        }

    def to_json(self, path: str | Path) -> None:
        """Writes ``as_json()`` to a file. Raises UsageError where it cannot be written."""
        write(path, json.dumps(self.as_json(), indent=1, allow_nan=False) + "\n")

    def to_html(self, path: str | Path) -> None:
        """Writes one HTML file that needs nothing beside it. Raises UsageError where it cannot be written."""
        from dort_compare.report.html import diff_page  # noqa: PLC0415  (most results are only printed)

        write(path, diff_page(self.as_json()))


def _lines(diff: Diff, everything: bool) -> Iterator[str]:
    found = diff.findings
    first = diff.first_divergence
    place = f"{_named(first.row)}: " if first else ""
    yield readable(f"{found.verdict}: {place}{found.reason}")
    yield readable(f"first {found.titles[0]}, second {found.titles[1]}; inputs: {', '.join(diff.inputs) or 'none'}")
    for cause in found.causes[: None if everything else _SHOWN]:
        yield ""
        yield from map(readable, _cause_lines(cause))
    if len(found.causes) > _SHOWN and not everything:
        yield f"\n... and {len(found.causes) - _SHOWN} more that diverge; --all shows them"
    yield ""
    yield f"pairs: {tally(_WORDS[row.status] for row in found.rows)}"
    guessed = sum(row.pair.how == "guess" for row in found.rows)
    if guessed:
        yield f"{guessed} of them are guesses: equal elements that prove little"
    for model in ("first", "second"):
        reasons = Counter(_kind(value.reason) for value in found.unpaired if value.model == model)
        if reasons:
            yield f"unpaired in the {model}: " + ", ".join(f"{n} {reason}" for reason, n in reasons.items())
    yield from map(readable, found.notes)
    if everything:
        yield from _tables(found)


def _named(row: ValueRow) -> str:
    made = f" ({row.op_types[1]})" if row.op_types[1] else ""
    return f"{row.pair.second!r}{made}"


def _cause_lines(cause: Cause) -> Iterator[str]:
    row = cause.row
    yield f"diverges: {_named(row)}, paired with {row.pair.first!r} by {row.pair.how}: {cause.reason}"
    for model, nodes in zip(("first", "second"), cause.nodes, strict=True):
        if nodes:
            more = f" and {len(nodes) - _SHOWN} more" if len(nodes) > _SHOWN else ""
            yield f"  made in the {model} by: {', '.join(nodes[-_SHOWN:])}{more}"
    for operand in cause.operands:
        if operand.name:
            yield f"  reads {operand.name!r}: " + (
                f"{operand.status}, {operand.partner!r}" if operand.partner else "unpaired"
            )


def _kind(reason: str) -> str:
    """A reason without the names of values."""
    return next((kind for start, kind in _KINDS.items() if reason.startswith(start)), reason)


def _tables(found: Findings) -> Iterator[str]:
    pairs = new_table("status", "how", "first", "op", "second", "op", "dtype", "shape", "inherited", "local", "noise")
    for row in found.rows:
        ends = (row.pair.first, row.op_types[0], row.pair.second, row.op_types[1])
        local = max_abs(row.local) if row.local else ""
        numbers = (max_abs(row.inherited), local, number(row.noise_floor))
        pairs.add_row(row.status, row.pair.how, *ends, row.dtypes[1], shape_text(row.shapes[1]), *numbers)
    yield ""
    yield rendered(pairs)
    if found.unpaired:
        rest = new_table("model", "value", "op", "reason")
        for value in found.unpaired:
            rest.add_row(value.model, value.name, value.op_type, value.reason)
        yield ""
        yield rendered(rest)
