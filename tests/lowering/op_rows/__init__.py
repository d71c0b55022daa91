"""The rows of the operator tests, one file a family."""

from op_rows import (
    activations,
    arithmetic,
    attention,
    casts,
    comparison,
    convolution,
    creation,
    elementary,
    embedding_bag,
    grid_sampler,
    images,
    indexing,
    matmul,
    normalization,
    padding,
    pooling,
    reduction,
    shape,
    special,
)
from op_rows.row import Row

__all__ = ["ROWS", "Row"]

ROWS: tuple[Row, ...] = (
    *activations.ROWS,
    *arithmetic.ROWS,
    *attention.ROWS,
    *casts.ROWS,
    *comparison.ROWS,
    *convolution.ROWS,
    *creation.ROWS,
    *elementary.ROWS,
    *embedding_bag.ROWS,
    *grid_sampler.ROWS,
    *images.ROWS,
    *indexing.ROWS,
    *matmul.ROWS,
    *normalization.ROWS,
    *padding.ROWS,
    *pooling.ROWS,
    *reduction.ROWS,
    *shape.ROWS,
    *special.ROWS,
)
