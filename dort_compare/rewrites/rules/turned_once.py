"""A large matrix that a product reads by columns is transposed once before it, as the gradient of a weight has it.

ONNX Runtime makes an attribute of the product of such a Transpose. Its kernel on the CPU then turns the matrix anew for
every block of columns of the other operand (`benchmarks/weight_gradients.py`).
"""

from __future__ import annotations

import onnx_ir as ir

from dort_compare.rewrites.graph import is_product, sizes_of, turns_matrices
from dort_compare.rewrites.writer import Replacement

_MULTIPLICATIONS = 2**27
_COLUMNS = 2**9
"""From so many multiplications, and columns of the other operand, on it pays."""


def turned_once(model: ir.Model, node: ir.Node) -> str | None:
    """Hides from ONNX Runtime's optimizers that the Transpose ``node`` is one of matrices; returns why not, where it
    stays."""
    matrix, turned = node.inputs[0], node.outputs[0]
    if not turns_matrices(node) or turned.dtype != ir.DataType.FLOAT:
        return "it does not transpose float32 matrices"
    sizes = sizes_of(turned)
    if matrix is None or sizes is None or len(sizes) != 2:
        return "it is not one matrix of known sizes"
    if not any(_is_large(use.node) for use in turned.uses() if use.idx == 0 and is_product(use.node)):
        return "no large product has it as its first operand"
    new, (rows, inner) = Replacement([node], "turned_once"), sizes
    turned = new.write("Transpose", new.reshaped(matrix, [1, inner, rows]), perm=[0, 2, 1])
    new.finish(model.graph, new.reshaped(turned, sizes))
    return None


def _is_large(product: ir.Node) -> bool:
    first, second = (sizes_of(operand) for operand in product.inputs)
    if first is None or second is None or len(second) != 2:
        return False
    (rows, inner), columns = first, second[-1]
    return columns >= _COLUMNS and rows * inner * columns >= _MULTIPLICATIONS
