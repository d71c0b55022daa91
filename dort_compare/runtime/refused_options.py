"""Values of session options with which ONNX Runtime makes no session of any model, which it does not say by itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import onnxruntime as ort

from dort_compare.errors import UsageError
from dort_compare.runtime.providers import ERRORS_ONLY, SessionSettings, smallest_model

_OPTIMIZED = "optimized_model_filepath"


def refused_option(settings: SessionSettings) -> UsageError | None:
    """What is wrong with the first option that is refused by itself, told after a session has failed; else None."""
    given = settings.session_options
    for name, value in given.items() if isinstance(given, Mapping) else ():
        if name == _OPTIMIZED and os.access(Path(value).parent, os.W_OK):
            continue  # a trial would write the file
        options = SessionSettings(session_options={name: value}).make_options()
        options.log_severity_level = ERRORS_ONLY + 1
        try:
            ort.InferenceSession(smallest_model(), options, ["CPUExecutionProvider"], enable_fallback=0)
        except Exception as problem:  # noqa: BLE001  (ONNX Runtime's exceptions have no other common base)
            return UsageError(f"session option {name!r} cannot be {value!r}: {' '.join(str(problem).split())}")
    return None
