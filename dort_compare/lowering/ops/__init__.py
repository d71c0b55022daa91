"""The lowerings, one file a family; importing this folder registers them all."""

from dort_compare.lowering.ops import (
    attention,
    attention_cuda,
    average_pooling,
    convolution,
    creation,
    embedding,
    indexing,
    matmul,
    max_pooling,
    pointwise,
    reduction,
    shape,
    softmax,
    symbolic,
)

__all__ = [
    "attention",
    "attention_cuda",
    "average_pooling",
    "convolution",
    "creation",
    "embedding",
    "indexing",
    "matmul",
    "max_pooling",
    "pointwise",
    "reduction",
    "shape",
    "softmax",
    "symbolic",
]
