"""Values of session options with which ONNX Runtime makes no session of any model, which it does not say by itself."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnxruntime as ort

from dort_compare.errors import UsageError
from dort_compare.problems import said
from dort_compare.runtime.opsets import smallest_model
from dort_compare.runtime.providers import ERRORS_ONLY, Provider, SessionSettings

_OPTIMIZED, _WRITE = "optimized_model_filepath", ("enable_profiling", "ep.context_")


def refused_option(settings: SessionSettings, providers: Sequence[Provider]) -> UsageError | None:
    """What is wrong with an option, told after a session on ``providers`` has failed; None where all together do.

    They are tried on the smallest model, all at once and then each by itself, but for those that write files.
    """
    given = settings.session_options
    if not isinstance(given, Mapping):
        return None
    tried = {name: value for name, value in given.items() if not _writes(name, value)}
    if _refusal(tried, providers) is None:
        return None
    for name, value in tried.items():
        if (problem := _refusal({name: value}, providers)) is not None:
            return UsageError(f"session option {name!r} cannot be {value!r}: {said(problem)}")
    return None


def _writes(name: str, value: Any) -> bool:
    return name.startswith(_WRITE) or (name == _OPTIMIZED and os.access(Path(value).parent, os.W_OK))


def _refusal(session_options: Mapping[str, Any], providers: Sequence[Provider]) -> Exception | None:
    options = SessionSettings(session_options=session_options).make_options()
    options.log_severity_level = ERRORS_ONLY + 1
    try:
        ort.InferenceSession(smallest_model(), options, providers, enable_fallback=0)
    except Exception as problem:  # noqa: BLE001  (ONNX Runtime's exceptions have no other common base)
        return problem
    return None
