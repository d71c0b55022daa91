"""Sessions that run a model as it stands: all of ONNX Runtime's optimizers off."""

from __future__ import annotations

import onnxruntime as ort

from dort_compare.runtime.providers import SessionSettings, once

_OFF = {"graph_optimization_level": ort.GraphOptimizationLevel.ORT_DISABLE_ALL, "log_severity_level": 4}

AS_IT_IS = SessionSettings(session_options=_OFF)
"""Of a whole model. ONNX Runtime changes it even then where its provider lacks kernels, as for float16."""

PART_AS_IT_IS = SessionSettings(session_options={**_OFF, **once()})
"""Of a part that runs once. Nothing is kept or waiting for a next run: an arena would stay whole for one value of it
that is kept, threads that spin would take the time of torch's."""
