"""The rows of the operator tests, one file a family."""

from op_rows import (
    attention,
    convolution,
    creation,
    embedding_bag,
    grid_sampler,
    images,
    indexing,
    matmul,
    normalization,
    padding,
    pointwise,
    pooling,
    reduction,
    shape,
)
from op_rows.row import Row

__all__ = ["ROWS", "Row"]

ROWS: tuple[Row, ...] = (
    *attention.ROWS,
    *convolution.ROWS,
    *creation.ROWS,
    *embedding_bag.ROWS,
    *grid_sampler.ROWS,
    *images.ROWS,
    *indexing.ROWS,
    *matmul.ROWS,
    *normalization.ROWS,
    *padding.ROWS,
    *pointwise.ROWS,
    *pooling.ROWS,
    *reduction.ROWS,
    *shape.ROWS,
)
