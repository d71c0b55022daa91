"""The rows of the operator tests, one file a family."""

from op_rows import (
    attention,
    creation,
    distances,
    extremes,
    index_writes,
    indexing,
    matmul,
    pointwise,
    rearranging,
    reduction,
    scattering,
    shape,
    strided,
)
from op_rows.row import Row

__all__ = ["ROWS", "Row"]

ROWS: tuple[Row, ...] = (
    *attention.ROWS,
    *creation.ROWS,
    *distances.ROWS,
    *extremes.ROWS,
    *index_writes.ROWS,
    *indexing.ROWS,
    *matmul.ROWS,
    *pointwise.ROWS,
    *rearranging.ROWS,
    *reduction.ROWS,
    *scattering.ROWS,
    *shape.ROWS,
    *strided.ROWS,
)
