"""``dort-compare bisect``: which of ONNX Runtime's optimizers make the models of a dump depart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dort_compare.dump.reader import Device
from dort_compare.measure.optimizers.bisect import Bisection, bisect
from dort_compare.offline.runs import dumped_runs, refuse_unloadable, running, title
from dort_compare.scalars import as_fed


def bisected(
    dump: str | Path, graph: str | int | None = None, *, model: str | Path | None = None, provider: Device = "cpu"
) -> Iterator[tuple[str, Bisection]]:
    """By the names of a dump's graphs, the optimizers of ONNX Runtime that make their models depart; see ``bisect``.

    The arguments are those of ``check``. Raises, at the call, UsageError for a wrong one and DumpError for a dump or
    model that cannot be read; DumpError for one that cannot be run, when its graph's turn comes.
    """
    runs = dumped_runs(dump, graph, provider, model)
    other = Path(model) if model is not None else None

    def bisections() -> Iterator[tuple[str, Bisection]]:
        for each, run in runs:
            refuse_unloadable(run, other or each.file("onnx"))
            inputs = {name: as_fed(value) for name, value in run.inputs.items()}
            with running(title(each, other)):
                found = bisect(run.onnx_model, inputs, run.providers)
            yield each.name, found

    return bisections()
