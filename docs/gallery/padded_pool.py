"""A convolutional stem that pads by hand before it pools."""

import numpy as np
import onnx
import onnxruntime as ort
import torch
from torch import Tensor, nn


def make() -> tuple[nn.Module, Tensor]:
    stem = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.SiLU(),
        nn.ZeroPad2d(1),
        nn.AvgPool2d(3, ceil_mode=True),
    )
    return stem, torch.randn(1, 3, 10, 10)


MODEL = """<ir_version: 10, opset_import: ["": 18]>
pool (float[1, 1, 8, 8] x) => (float[1, 1, h, w] y) <int64[8] pads = {0, 0, 1, 1, 0, 0, 1, 1}> {
    padded = Pad(x, pads)
    y = AveragePool<kernel_shape = [3, 3], strides = [3, 3], ceil_mode = 1>(padded)
}"""


def check() -> None:
    model = onnx.parser.parse_model(MODEL).SerializeToString()
    options = ort.SessionOptions()
    options.log_severity_level = 3
    for disabled in ([], ["Pad_Fusion"]):
        session = ort.InferenceSession(model, options, ["CPUExecutionProvider"], disabled_optimizers=disabled)
        (pooled,) = session.run(None, {"x": np.ones((1, 1, 8, 8), np.float32)})
        print(pooled.shape, "without", *disabled or ["nothing"])


if __name__ == "__main__":
    check()
