"""ONNX models from the text of their graphs."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper


def model(text: str, **constants: np.ndarray) -> onnx.ModelProto:
    """A model of opset 18 from the text of its graph; ``constants`` become initializers."""
    parsed = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]> {text}')
    parsed.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items())
    return parsed
