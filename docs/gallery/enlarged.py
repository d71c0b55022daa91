"""Enlarges images by a factor that leaves no whole sizes, with anti-aliasing."""

import onnxruntime as ort
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Enlarge(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return F.interpolate(images, scale_factor=1.7, mode="bilinear", antialias=True)


def make() -> tuple[nn.Module, Tensor]:
    return Enlarge(), torch.rand(1, 3, 8, 7)


def check() -> None:
    torch.manual_seed(0)
    model, images = Enlarge().eval(), torch.rand(1, 3, 8, 7)
    program = torch.onnx.export(model, (images,), dynamo=True, verbose=False)
    session = ort.InferenceSession(program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: images.numpy()})
    by_size = F.interpolate(images, size=(13, 11), mode="bilinear", antialias=True)
    for name, other in {"scale_factor=1.7": model(images), "size=(13, 11)": by_size}.items():
        print(f"the exported model against torch with {name}: {(torch.from_numpy(found) - other).abs().max():.2g}")


if __name__ == "__main__":
    check()
