"""What the gradient of a convolution by its input takes: as it is lowered, as a transposed convolution, and in torch.

    python benchmarks/flipped_kernels.py --write benchmarks/results/flipped-kernels.md

Every line is the gradient, float32, of one convolution by steps of 1 that keeps the size: by ONNX Runtime's
ConvTranspose, by the nodes that it is lowered to, a Conv with the flipped kernel where that is thought to pay, and by
torch; the three take turns on the CPU. Their values are compared before. A ratio is the median of the ratios within a
round.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import onnx
import onnx_ir as ir
import onnxruntime as ort
import torch
from pages import flags, page, show
from sessions import session
from torch.fx.experimental.proxy_tensor import make_fx
from turns import milliseconds, ratio, timed

from dort_compare.lowering import lower

ROUNDS, ROUND_SECONDS, TOLERANCE = 15, 0.02, 1e-5
COLUMNS = ("convolution", "batch, channels, size", "to channels", "kernel", "groups", "lowered to",
           "ConvTranspose, ms", "lowered, ms", "ConvTranspose / lowered", "torch / lowered")  # fmt: skip


class Convolution(NamedTuple):
    """One that keeps the size; ``size`` is the length of each side."""

    what: str
    batch: int
    channels: int
    size: int
    out: int
    kernel: int
    groups: int = 1
    rank: int = 2

    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The gradient of the result, the input, and the kernels."""
        generator = torch.Generator().manual_seed(0)
        shapes = ((self.batch, self.out, *[self.size] * self.rank),
                  (self.batch, self.channels, *[self.size] * self.rank),
                  (self.out, self.channels // self.groups, *[self.kernel] * self.rank))  # fmt: skip
        grad, x, weight = (torch.randn(shape, generator=generator) for shape in shapes)
        return grad, x, weight

    def by_torch(self, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """The gradient by the input."""
        geometry = ([1] * self.rank, [self.kernel // 2] * self.rank, [1] * self.rank, False, [0] * self.rank)
        mask = [True, False, False]
        by_input, _, _ = torch.ops.aten.convolution_backward(grad, x, weight, None, *geometry, self.groups, mask)
        return by_input

    def transposed(self) -> onnx.ModelProto:
        """A model of one ConvTranspose."""
        grad, x, weight = (list(tensor.shape) for tensor in self.tensors())
        pads = [self.kernel // 2] * 2 * self.rank
        return onnx.parser.parse_model(
            f'<ir_version: 10, opset_import: ["" : 18]> g (float{grad} g, float{weight} w) => (float{x} y) '
            f"{{ y = ConvTranspose <group = {self.groups}, pads = {pads}> (g, w) }}"
        )


CONVOLUTIONS = (
    Convolution("ResNet, first stage", 4, 64, 56, 64, 3),
    Convolution("ResNet, second stage", 4, 128, 28, 128, 3),
    Convolution("ResNet, last stage", 4, 512, 7, 512, 3),
    Convolution("UNet, few channels", 4, 16, 64, 16, 3),
    Convolution("UNet, many channels", 1, 320, 32, 320, 3),
    Convolution("halves the channels", 4, 128, 56, 64, 3),
    Convolution("doubles the channels", 4, 64, 56, 128, 3),
    Convolution("last of a decoder of images", 4, 128, 64, 3, 3),
    Convolution("first on an image", 4, 3, 224, 64, 3),
    Convolution("depthwise, MobileNet", 4, 144, 56, 144, 3, 144),
    Convolution("depthwise, EfficientNet", 4, 960, 7, 960, 5, 960),
    Convolution("depthwise, ConvNeXt", 4, 96, 56, 96, 7, 96),
    Convolution("depthwise along time", 4, 512, 256, 512, 31, 512, 1),
    Convolution("along time", 4, 64, 1024, 64, 3, 1, 1),
    Convolution("volumes", 1, 32, 32, 32, 3, 1, 3),
)


def rows(threads: int) -> Iterator[list[str]]:
    """A line for every convolution."""
    for case in CONVOLUTIONS:
        grad, x, weight = case.tensors()
        traced = make_fx(lambda *tensors, by_torch=case.by_torch: by_torch(*tensors))(grad, x, weight)
        traced.graph.eliminate_dead_code()
        lowered = ir.to_proto(lower(traced, "backward", 18).model)
        kind = next(node.op_type for node in lowered.graph.node if node.op_type.startswith("Conv"))
        feeds = {value.name: tensor for value, tensor in zip(lowered.graph.input, (grad, x, weight), strict=True)}
        ways = {
            "transposed": partial(run, session(case.transposed(), threads), {"g": grad, "w": weight}),
            "lowered": partial(run, session(lowered, threads), feeds),
            "torch": partial(case.by_torch, grad, x, weight),
        }
        check(case, [way() for way in ways.values()])
        times = timed(ways, ROUNDS, ROUND_SECONDS)
        sizes = [case.batch, case.channels, *[case.size] * case.rank]
        yield [
            case.what,
            str(tuple(sizes)),
            str(case.out),
            " x ".join([str(case.kernel)] * case.rank),
            str(case.groups),
            kind,
            *(milliseconds(times[name]) for name in ("transposed", "lowered")),
            *(f"{ratio(times, name, 'lowered'):.2f}" for name in ("transposed", "torch")),
        ]


def run(of: ort.InferenceSession, feeds: dict[str, torch.Tensor]) -> torch.Tensor:
    """The gradient."""
    taken = {value.name for value in of.get_inputs()}
    return torch.from_numpy(of.run(None, {name: x.numpy() for name, x in feeds.items() if name in taken})[0])


def check(case: Convolution, results: list[torch.Tensor]) -> None:
    """Raises where the ways differ by more than rounding."""
    exact = case.by_torch(*(tensor.double() for tensor in case.tensors()))
    worst = max(float((result - exact).abs().max() / exact.abs().max()) for result in results)
    if not math.isfinite(worst) or worst > TOLERANCE:
        raise SystemExit(f"{case.what}: the ways lie {worst:.1e} apart")


def main() -> None:
    """Measures every convolution."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, parents=[flags()]
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    title = f"Gradients of convolutions by their input, {options.threads} threads"
    found = rows(options.threads)
    show(page(title, __doc__ or "", ("torch", "onnxruntime-gpu"), COLUMNS, found), options.write)


if __name__ == "__main__":
    main()
