"""The result of a comparison, and its forms."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dort_compare.backends.fallback import Fallback
from dort_compare.backends.recorded_runs import ComparedGraph
from dort_compare.errors import UsageError
from dort_compare.files import write
from dort_compare.measure.before_onnx.modules import ModuleRow
from dort_compare.measure.divergence import Divergence, Judgement
from dort_compare.measure.half.precision import Precision
from dort_compare.measure.half.suggestion import Suggestion
from dort_compare.measure.observer import Observed
from dort_compare.measure.optimized import Optimized
from dort_compare.measure.outcome import OutcomeRow
from dort_compare.measure.rollup import by_module
from dort_compare.measure.rows import Row
from dort_compare.report.causes import verdict_line

if TYPE_CHECKING:
    import pandas

SCHEMA = 1


@dataclass(frozen=True)
class Report:
    """What a comparison found.

    Attributes:
        verdict: "agree" or "diverge".
        causes: every value that departs by itself, in order, or where an output begins to; none where all agrees.
        rows: one for every value of every graph, in order of execution.
        outputs: one for every output, gradient and update of the whole model, against the plain, uncompiled one.
        fallbacks: the FX nodes that ran in eager torch.
        graph_breaks: why torch.compile ended a graph before the end of the model, or made none of a function, and
            where, once for each: what runs between graphs is eager torch, and is not compared.
        graphs: the graphs in the order of their first runs, with how often each ran and how many runs were compared.
        modules: one for every result of a module and every gradient of one, plain eager against the traced graphs on
            torch's kernels.
        optimized: the values of the models that ONNX Runtime's optimizers made, where asked for, and those of graphs
            that depart there although no operation of theirs does by itself.
        observed: the outputs of each graph as the program computed them, against those of the exposed models.
        precision: casts, and how half-precision values use their dtype.
        suggestion: what to keep in float32, where that was asked for.
        settings: what was asked for, as JSON values.
        environment: the versions and the machine that it ran on.
    """

    verdict: Judgement
    causes: tuple[Divergence, ...]
    rows: tuple[Row, ...]
    outputs: tuple[OutcomeRow, ...]
    fallbacks: tuple[Fallback, ...] = ()
    graph_breaks: tuple[str, ...] = ()
    graphs: tuple[ComparedGraph, ...] = ()
    modules: tuple[ModuleRow, ...] = ()
    optimized: Optimized | None = None
    observed: tuple[Observed, ...] = ()
    precision: Precision = field(default_factory=Precision)
    suggestion: Suggestion | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def first_divergence(self) -> Divergence | None:
        """The first of the causes; None where all agrees."""
        return self.causes[0] if self.causes else None

    def __str__(self) -> str:
        return self.text()

    def text(self, *, everything: bool = False) -> str:
        """The verdict and the few rows that matter, in 80 columns; with ``everything`` every row."""
        from dort_compare.report.terminal import report_text  # noqa: PLC0415  (rich is only needed to print)

        return report_text(self, everything=everything)

    def as_json(self) -> dict[str, Any]:
        """The report as strict JSON, infinity as the string "inf"."""
        first = self.first_divergence
        return {
            "schema": SCHEMA,
            "verdict": self.verdict,
            "summary": verdict_line(self),
            "first_divergence": first.to_json() if first else None,
            "causes": [cause.to_json() for cause in self.causes],
            "rows": [row.to_json() for row in self.rows],
            "outputs": [row.to_json() for row in self.outputs],
            "fallbacks": [fallback.to_json() for fallback in self.fallbacks],
            "graph_breaks": list(self.graph_breaks),
            "graphs": [graph.to_json() for graph in self.graphs],
            "modules": [row.to_json() for row in self.modules],
            "by_module": [errors.to_json() for errors in by_module(self.rows)],
            "optimized": self.optimized.to_json() if self.optimized else None,
            "observer": [seen.to_json() for seen in self.observed],
            "precision": self.precision.to_json(),
            "suggest_fp32": self.suggestion.to_json() if self.suggestion else None,
            "settings": dict(self.settings),
            "environment": dict(self.environment),
        }

    def to_json(self, path: str | Path) -> None:
        """Writes ``as_json()`` to a file. Raises UsageError where it cannot be written."""
        write(path, json.dumps(self.as_json(), indent=1, allow_nan=False) + "\n")

    def to_html(self, path: str | Path) -> None:
        """Writes one HTML file that needs nothing beside it. Raises UsageError where it cannot be written."""
        from dort_compare.report.html import page  # noqa: PLC0415  (as below: most reports are only printed)

        write(path, page(self.as_json()))

    def to_model_explorer(self, folder: str | Path) -> list[Path]:
        """Writes node data for Model Explorer, which colour a dumped model by its errors; returns the files.

        Raises UsageError where they cannot be written.
        """
        from dort_compare.report.model_explorer import write_node_data  # noqa: PLC0415  (most reports are only printed)

        return write_node_data(self.rows, folder)

    def to_csv(self, path: str | Path) -> None:
        """Writes the records of ``to_dataframe`` as CSV. Raises UsageError where it cannot be written."""
        from dort_compare.report.records import csv_text  # noqa: PLC0415

        write(path, csv_text(self))

    def to_junit(self, path: str | Path) -> None:
        """Writes JUnit XML: a test case for the verdict, each module of each graph, each output, gradient and update.

        Raises UsageError where it cannot be written.
        """
        from dort_compare.report.junit import junit_text  # noqa: PLC0415

        write(path, junit_text(self))

    def to_sarif(self, path: str | Path) -> None:
        """Writes SARIF 2.1.0: each cause at its line of source. Raises UsageError where it cannot be written."""
        from dort_compare.report.sarif import sarif_text  # noqa: PLC0415

        write(path, sarif_text(self))

    def to_dataframe(self) -> pandas.DataFrame:
        """A row for every value, output, gradient and update; ``report.records`` says what the columns hold.

        Raises UsageError where pandas is not installed.
        """
        try:
            import pandas  # noqa: PLC0415  (an extra)
        except ModuleNotFoundError:
            raise UsageError("to_dataframe needs pandas: pip install 'dort-compare[pandas]'") from None
        from dort_compare.report.records import COLUMNS, records  # noqa: PLC0415

        return pandas.DataFrame(records(self), columns=list(COLUMNS))

    def _repr_html_(self) -> str:
        """What Jupyter shows: the text, the verdict in colour."""
        verdict, rest = self.verdict, self.text().removeprefix(self.verdict)
        colour = "#1a7f37" if verdict == "agree" else "#cf222e"
        return f'<pre><b style="color:{colour}">{verdict}</b>{html.escape(rest)}</pre>'
