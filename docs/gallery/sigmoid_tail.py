"""A loss written by hand: the logarithm of the probability of the right one of two classes."""

import numpy as np
import onnx
import onnxruntime as ort
import torch
from torch import Tensor, nn


class LogLikelihood(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(16, 1)

    def forward(self, x: Tensor, sign: Tensor) -> Tensor:
        return torch.sigmoid(sign * self.score(x)).log()


def make() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return LogLikelihood(), (40 * torch.randn(64, 16), torch.randint(0, 2, (64, 1)) * 2.0 - 1)


MODEL = '<ir_version: 10, opset_import: ["": 18]> tail (float[n] x) => (float[n] y) { y = Sigmoid(x) }'


def check() -> None:
    x = np.float32([-10, -17, -18, -40])
    session = ort.InferenceSession(
        onnx.parser.parse_model(MODEL).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (found,) = session.run(None, {"x": x})
    for number, ours, right in zip(x, found, 1 / (1 + np.exp(-x.astype(np.float64))), strict=True):
        print(f"sigmoid({number:.0f}) = {right:.3g}, ONNX Runtime: {ours:.3g}")


if __name__ == "__main__":
    check()
