"""The rows of the operator tests, one file a family."""

from op_rows import attention, creation, indexing, matmul, pointwise, reduction, shape
from op_rows.row import Row

__all__ = ["ROWS", "Row"]

ROWS: tuple[Row, ...] = (
    *attention.ROWS,
    *creation.ROWS,
    *indexing.ROWS,
    *matmul.ROWS,
    *pointwise.ROWS,
    *reduction.ROWS,
    *shape.ROWS,
)
