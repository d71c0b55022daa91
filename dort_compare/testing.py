"""For tests of models: an assertion that a model agrees with eager PyTorch on ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from dort_compare.api import compare
from dort_compare.report import Report


def assert_agrees(
    model: nn.Module, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
) -> Report:
    """Compares ``model`` as ``dort_compare.compare`` does, with the same arguments and options; returns the report.

    Raises AssertionError where it diverges, with the report as its text: the verdict first. What else ``compare``
    raises, it raises.
    """
    __tracebackhide__ = True  # pytest then shows the line of the test
    report = compare(model, args, kwargs, **options)
    if report.verdict != "agree":
        raise AssertionError(str(report))
    return report
