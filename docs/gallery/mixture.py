"""A mixture of two normal distributions: the logarithm of its density."""

import onnxruntime as ort
import torch
from torch import Tensor, nn


class Mixture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.means = nn.Parameter(torch.tensor([-1.0, 3.0]))

    def forward(self, x: Tensor) -> Tensor:
        first, second = (-(x[:, None] - self.means).square() / 2).unbind(1)
        return torch.logaddexp(first, second)


def make() -> tuple[nn.Module, Tensor]:
    return Mixture(), 8 * torch.randn(32)


class Sum(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.logaddexp(a, b)


def check() -> None:
    a = b = torch.tensor([-120.0])
    program = torch.onnx.export(Sum().eval(), (a, b), dynamo=True, verbose=False)
    session = ort.InferenceSession(program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {given.name: a.numpy() for given in session.get_inputs()}
    print("exported as", *(node.op_type for node in program.model.graph))
    print(f"torch {torch.logaddexp(a, b).item():.3f}, exported {session.run(None, feeds)[0].item():.3f}")


if __name__ == "__main__":
    check()
