"""The lowerings, one file a family; importing this folder registers them all."""

from dort_compare.lowering.ops import (
    attention,
    attention_cuda,
    creation,
    embedding,
    index_writes,
    indexing,
    masks,
    matmul,
    pointwise,
    reduction,
    scattering,
    shape,
    softmax,
    symbolic,
)

__all__ = [
    "attention",
    "attention_cuda",
    "creation",
    "embedding",
    "index_writes",
    "indexing",
    "masks",
    "matmul",
    "pointwise",
    "reduction",
    "scattering",
    "shape",
    "softmax",
    "symbolic",
]
