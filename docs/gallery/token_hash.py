"""Hashes tokens into buckets, in int64 that wraps around."""

import numpy as np
import onnx
import onnxruntime as ort
import torch
from torch import Tensor, nn


class HashEmbedding(nn.Module):
    def __init__(self, buckets: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(buckets, width)

    def forward(self, tokens: Tensor) -> Tensor:
        hashes = (tokens + 1_000_003) ** 5
        return self.table(hashes % self.table.num_embeddings)


def make() -> tuple[nn.Module, Tensor]:
    return HashEmbedding(97, 8), torch.randint(0, 50_000, (2, 12))


MODEL = """<ir_version: 10, opset_import: ["": 18]>
power (int64[n] x) => (int64[n] y) <int64 five = {5}> { y = Pow(x, five) }"""


def check() -> None:
    x = np.int64([1_000_003])
    session = ort.InferenceSession(
        onnx.parser.parse_model(MODEL).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    print("torch       ", (torch.from_numpy(x) ** 5).item())
    print("numpy       ", (x**5).item())
    print("ONNX Runtime", session.run(None, {"x": x})[0].item())


if __name__ == "__main__":
    check()
