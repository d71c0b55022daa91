"""Products of matrices whose batch and heads torch has made one axis for ``bmm``, with two axes again: the reshapes
around them hide from other rules which matrices are a head's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import onnx_ir as ir

from dort_compare.rewrites.graph import sizes_of, take_place, turns_matrices, typed
from dort_compare.rewrites.writer import Replacement

_RANK = 3


def with_heads(model: ir.Model, node: ir.Node) -> str | None:
    """Gives a product the axes that a Reshape before it or behind it tells of; returns why not."""
    given = [sizes_of(value) for value in (*node.inputs, *node.outputs)]
    if any(sizes is None or len(sizes) != _RANK or sizes[0] != (given[0] or [])[0] for sizes in given):
        return "it is no product of as many matrices as others"
    if any(name.startswith("transBatch") for name in node.attributes):
        return "it turns more than matrices"
    apart = next(_apart(node), None)
    if apart is None:
        return "nothing tells of heads"
    new = Replacement([node], "heads")
    operands = [_operand(new, value, apart) for value in node.inputs if value is not None]
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    product = new.write(node.op_type, *operands, domain=node.domain, **attributes)
    typed(product, [*apart, *(given[-1] or [])[1:]], node.outputs[0])
    shown = [value for value in _shown(node.outputs[0]) if sizes_of(value) == sizes_of(product)]
    new.finish(model.graph, new.reshaped(product, given[-1] or []))
    if shown:
        take_place(product, shown[0])
    for use in (use for value in shown[1:] for use in value.uses()):
        use.node.replace_input_with(use.idx, product)
    return None


def _apart(product: ir.Node) -> Iterator[list[int]]:
    """Batch and heads, as what a stack of matrices shows, or is shown as, tells of them."""
    before = (_source(stack) or _source(_turned(stack)) for stack in product.inputs)
    for value in (*before, *_shown(product.outputs[0])):
        if value is not None:
            yield (sizes_of(value) or [])[:2]


def _operand(new: Replacement, stack: ir.Value, apart: Sequence[int]) -> ir.Value:
    """The matrices of a stack, by batch and heads."""
    sizes = [*apart, *(sizes_of(stack) or [])[1:]]
    if (source := _source(stack)) is not None and sizes_of(source) == sizes:
        return source
    if (turned := _turned(stack)) is None:
        return new.reshaped(stack, sizes)
    return typed(new.write("Transpose", _operand(new, turned, apart), perm=(0, 1, 3, 2)), sizes, stack)


def _source(stack: ir.Value | None) -> ir.Value | None:
    """What a stack shows, if it has the same matrices by batch and heads."""
    made = _maker(stack)
    source = made.inputs[0] if made is not None and made.op_type == "Reshape" else None
    return source if _is_apart(source, stack) else None


def _shown(stack: ir.Value) -> Iterator[ir.Value]:
    """What shows a stack's matrices by batch and heads."""
    for reader in stack.consumers():
        result = reader.outputs[0]
        if reader.op_type == "Identity":
            yield from _shown(result)
        elif reader.op_type == "Reshape" and _is_apart(result, stack):
            yield result


def _is_apart(value: ir.Value | None, stack: ir.Value | None) -> bool:
    apart, one = sizes_of(value) or [], sizes_of(stack) or []
    return len(apart) == _RANK + 1 and len(one) == _RANK and apart[2:] == one[1:] and math.prod(apart[:2]) == one[0]


def _turned(stack: ir.Value | None) -> ir.Value | None:
    """The stack of which this one has every matrix turned."""
    made = _maker(stack)
    return made.inputs[0] if made is not None and turns_matrices(made) else None


def _maker(value: ir.Value | None) -> ir.Node | None:
    made = value.producer() if value is not None else None
    return _maker(made.inputs[0]) if made is not None and made.op_type == "Identity" else made
