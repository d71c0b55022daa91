"""Sessions of ONNX Runtime that take turns with others on the same cores."""

from __future__ import annotations

import onnx
import onnxruntime as ort
import torch


def session(model: onnx.ModelProto, threads: int) -> ort.InferenceSession:
    """A session of the CPU whose threads stop waiting busily where a run ends, as those of the backend do: they would
    slow whatever runs next."""
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def result(of: ort.InferenceSession, x: torch.Tensor) -> torch.Tensor:
    """The first result of a model of one input."""
    return torch.from_numpy(of.run(None, {of.get_inputs()[0].name: x.numpy()})[0])
