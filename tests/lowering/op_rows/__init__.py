"""The rows of the operator tests, one file a family."""

from op_rows import (
    activations,
    arithmetic,
    attention,
    casts,
    comparison,
    creation,
    elementary,
    indexing,
    matmul,
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
    *creation.ROWS,
    *elementary.ROWS,
    *indexing.ROWS,
    *matmul.ROWS,
    *reduction.ROWS,
    *shape.ROWS,
    *special.ROWS,
)
