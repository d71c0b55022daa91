"""A whole tensor times a power of two, times a number a row: the power is multiplied with the numbers of the rows.

The gradient of a square is twice what was squared. Powers of two round nothing, so the values are the same to the last
bit, unless twice the number leaves the range of its dtype.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from dort_compare.rewrites.graph import is_read_once, number, sizes_of, typed
from dort_compare.rewrites.writer import Replacement

_PAYS = 8
"""How many elements of the tensor there must be for each of the other factor."""
_MOST = 16.0


def double_the_smaller(model: ir.Model, node: ir.Node) -> str | None:
    """Moves a power of two from the larger factor of the Mul ``node`` to the smaller one; returns why not, where it
    stays."""
    for large, small in (node.inputs, [*reversed(node.inputs)]):
        made = large.producer() if large is not None else None
        if large is None or small is None or made is None or made.op_type != "Mul" or not is_read_once(large):
            continue
        if number(small) is not None:
            return "the other factor is a number, too"
        x, power = _split(made)
        if x is None or power is None or not _is_power_of_two(power):
            continue
        sizes, few = sizes_of(large), sizes_of(small)
        if sizes is None or few is None or sizes_of(x) != sizes or math.prod(sizes) < _PAYS * math.prod(few):
            return "the other factor is about as large, or sizes are not known"
        new = Replacement([made, node], "doubled")
        factor = next(each for each in made.inputs if each is not x)
        scaled = typed(new.write("Mul", small, factor), few, small)
        new.finish(model.graph, new.write("Mul", x, scaled))
        return None
    return "no factor is a tensor times a power of two"


def _split(product: ir.Node) -> tuple[ir.Value | None, float | None]:
    """What is multiplied, and by which number."""
    for value, other in (product.inputs, [*reversed(product.inputs)]):
        if (factor := number(other)) is not None:
            return value, factor
    return None, None


def _is_power_of_two(value: float) -> bool:
    return math.frexp(abs(value))[0] == 0.5 and 1 / _MOST <= abs(value) <= _MOST
