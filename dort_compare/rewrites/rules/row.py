"""A number a row, taken from a matrix product, becomes one more term of its sums: ``a @ b - r == [a, -r] @ [b, 1]``.

The gradient of attention subtracts so from all its scores, forward and backward: two columns of operands are copied in
the place of a pass over the scores.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from dort_compare.rewrites.graph import is_product, is_read_once, sizes_of, typed
from dort_compare.rewrites.writer import Replacement

_PAYS = 4
"""How many elements of the product there must be for each that is copied."""


def row_into_matmul(model: ir.Model, node: ir.Node) -> str | None:
    """Takes the Sub ``node`` into the product before it; returns why not, where it stays."""
    product, row = node.inputs
    made = product.producer() if product is not None else None
    if product is None or row is None or made is None or not is_product(made) or not is_read_once(product):
        return "it does not subtract from a matrix product that nothing else reads"
    if product.dtype != ir.DataType.FLOAT or {*made.attributes} - {"alpha"}:
        return "the product is not of float32, or transposes its operands"
    a, b = (sizes_of(operand) for operand in made.inputs)
    if a is None or b is None or not len(a) == len(b) > 1 or sizes_of(row) != [*a[:-1], 1]:
        return "it does not subtract one number a row of the product's first operand, or sizes are not known"
    rows, inner, columns = a[-2], a[-1], b[-1]
    if rows * columns < _PAYS * inner * (rows + columns):
        return "the product has too few elements for what would be copied"
    _replace(model, made, node, row, [*b[:-2], 1, columns])
    return None


def _replace(model: ir.Model, product: ir.Node, difference: ir.Node, row: ir.Value, ones: Sequence[int]) -> None:
    new, attributes = Replacement([product, difference], "row"), dict(product.attributes)
    alpha = attributes["alpha"].as_float() if attributes else 1.0
    constant = new.write("Constant", value=ir.tensor(np.full(ones, -1 / alpha, np.float32)))
    a = _joined(new, product.inputs[0], row, -1)
    b = _joined(new, product.inputs[1], constant, -2)
    new.finish(model.graph, new.write(product.op_type, a, b, domain=product.domain, **attributes))


def _joined(new: Replacement, matrix: ir.Value | None, more: ir.Value, axis: int) -> ir.Value:
    """A matrix with one more row or column."""
    sizes = sizes_of(matrix) or []
    sizes[axis] += 1
    return typed(new.write("Concat", matrix, more, axis=axis), sizes, more)
