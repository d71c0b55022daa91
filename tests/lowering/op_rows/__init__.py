"""The rows of the operator tests, one file a family."""

from op_rows import attention, creation, index_writes, indexing, matmul, pointwise, reduction, scattering, shape
from op_rows.row import Row

__all__ = ["ROWS", "Row"]

ROWS: tuple[Row, ...] = (
    *attention.ROWS,
    *creation.ROWS,
    *index_writes.ROWS,
    *indexing.ROWS,
    *matmul.ROWS,
    *pointwise.ROWS,
    *reduction.ROWS,
    *scattering.ROWS,
    *shape.ROWS,
)
