"""The gradient of a convolution by its input is a convolution where that is faster; op rows test its values."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from dort_compare.lowering import lower

LARGE = 32
DEPTHWISE = (8, 8, 8)
TO_IMAGES = (16, 3, 1)


def op_type(
    channels: tuple[int, int, int], size: int, stride: int = 1, padding: int = 1, symbolic: bool = False
) -> str:
    """The convolution that the gradient by the input is lowered to, of kernels of 3 x 3; ``channels`` are those of the
    input, of the result, and the groups."""
    inner, outer, groups = channels
    x, weight = torch.randn(2, inner, size, size), torch.randn(outer, inner // groups, 3, 3)
    geometry = ([stride] * 2, [padding] * 2, [1, 1], False, [0, 0], groups)
    grad = torch.ops.aten.convolution(x, weight, None, *geometry)

    def by_input(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.convolution_backward(grad, x, weight, None, *geometry, [True, False, False])[0]

    traced = make_fx(by_input, tracing_mode="symbolic" if symbolic else "real")(grad, x, weight)
    traced.graph.eliminate_dead_code()
    (found,) = {node.op_type for node in lower(traced, "backward", 18).model.graph if "Conv" in node.op_type}
    return found


@pytest.mark.parametrize("channels", [DEPTHWISE, TO_IMAGES, (8, 8, 1)], ids=["depthwise", "to images", "equal"])
def test_a_kernel_that_is_small_beside_the_signal_is_flipped(channels):
    assert op_type(channels, LARGE) == "Conv"


@pytest.mark.parametrize(
    "arguments",
    [
        {"channels": (16, 16, 1), "size": 4},
        {"channels": (3, 16, 1), "size": LARGE},
        {"channels": DEPTHWISE, "size": LARGE, "stride": 2},
        {"channels": DEPTHWISE, "size": LARGE, "padding": 3},
        {"channels": DEPTHWISE, "size": LARGE, "symbolic": True},
    ],
    ids=["large kernel", "from images", "stride", "padding beyond reach", "kernel of unknown size"],
)
def test_else_the_convolution_is_transposed(arguments):
    assert op_type(**arguments) == "ConvTranspose"
