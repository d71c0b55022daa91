"""Products that torch does faster than ONNX Runtime, on processors with AVX-512 (`benchmarks/slow_products.py`)."""

from __future__ import annotations

import math

import torch
from torch import fx

from dort_compare.backends.processor import HAS_AVX512, IS_INTEL
from dort_compare.layouts import elements, hints

aten = torch.ops.aten

MANY = 4 * 10**9
"""Multiplications and additions from which on a product of matrices is left to torch."""
LARGE = 2**17
"""Elements of the image, its gradient or the weight from which on the gradient of a convolution is."""


def is_slow_product(node: fx.Node) -> bool:
    """Whether a call of a training graph, as large as it was when it was traced, is such a product: of large matrices
    on an Intel processor, or the gradient of a convolution with a kernel of more than one element, which ONNX Runtime
    makes of products.

    In float32 alone. In inference trials of whole models gained nothing by leaving products.
    """
    if not HAS_AVX512:
        return False
    if node.target in (aten.mm.default, aten.addmm.default):
        return IS_INTEL and _operations(node) >= MANY
    return node.target == aten.convolution_backward.default and _is_large_gradient(node)


def _operations(node: fx.Node) -> int:
    """2 M N K; 0 where a size shows in a run alone, or the product is of another dtype."""
    result, right = node.meta["val"], node.args[-1].meta["val"]  # type: ignore[union-attr]
    sizes = hints([*result.shape, right.shape[0]])
    return 0 if sizes is None or result.dtype != torch.float32 else 2 * math.prod(sizes)


def _is_large_gradient(node: fx.Node) -> bool:
    grad, image, weight = (node.args[i].meta["val"] for i in range(3))  # type: ignore[union-attr]
    kernel = hints(weight.shape[2:])
    if grad.dtype != torch.float32 or kernel is None or math.prod(kernel) == 1:
        return False
    return max(elements(each) or 0 for each in (grad, image, weight)) >= LARGE
