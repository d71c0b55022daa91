"""Which opsets, and which models, the installed ONNX Runtime takes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort

from dort_compare.errors import UsageError
from dort_compare.runtime.providers import CPU, ERRORS_ONLY

OLDEST_OPSET = 18


@functools.cache
def newest_opset() -> int:
    """The newest ONNX opset for which both the onnx package has schemas and ONNX Runtime makes sessions."""
    for opset in range(onnx.defs.onnx_opset_version(), OLDEST_OPSET, -1):
        if _accepts(opset):
            return opset
    return OLDEST_OPSET


def checked_opset(opset: int | None, newest: int) -> int:
    """``opset``, or ``newest`` for None. Raises UsageError outside OLDEST_OPSET ... newest."""
    if opset is None:
        return newest
    if not isinstance(opset, int) or not OLDEST_OPSET <= opset <= newest:
        raise UsageError(
            f"opset {opset!r} is not supported: choose {OLDEST_OPSET} to {newest} "
            f"(ONNX Runtime {ort.__version__}, onnx {onnx.__version__})"
        )
    return opset


def _accepts(opset: int) -> bool:
    return loads(smallest_model(opset), [CPU])


def smallest_model(opset: int = OLDEST_OPSET) -> bytes:
    """A serialized model that returns its input, to try what ONNX Runtime takes."""
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["x"], ["y"])],
        "probe",
        [value("x", onnx.TensorProto.FLOAT, [1])],
        [value("y", onnx.TensorProto.FLOAT, [1])],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=10)
    return model.SerializeToString()


def loads(model: bytes, providers: Sequence[Any], made: Path | None = None) -> bool:
    """Whether ONNX Runtime makes a session of a serialized model; ``made`` is a file for the model that it runs."""
    options = ort.SessionOptions()
    options.log_severity_level = ERRORS_ONLY + 1
    if made is not None:
        options.optimized_model_filepath = str(made)
    try:
        ort.InferenceSession(model, options, providers=list(providers))
    except Exception:  # noqa: BLE001  (ONNX Runtime's exceptions have no common base but Exception)
        return False
    return True
