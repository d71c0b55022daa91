"""What is repeated along axes is repeated as late as can be: arithmetic repeats its operands by itself.

The gradient of a mean, as in normalization, repeats a number a row, divides the whole by a constant and multiplies it
with a tensor: three passes where one is enough. The values are the same to the last bit.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from dort_compare.rewrites.graph import is_read_once, number, sizes_of, typed
from dort_compare.rewrites.writer import Replacement


def expand_late(model: ir.Model, node: ir.Node) -> str | None:
    """Lets the elementwise ``node`` read what an Expand repeats, or stand before it; returns why not, where it does
    not."""
    refused = "nothing that it reads is repeated"
    for place, value in enumerate(node.inputs):
        expand = value.producer() if value is not None else None
        if value is None or expand is None or expand.op_type != "Expand":
            continue
        repeated, other = expand.inputs[0], node.inputs[1 - place]
        small, full = sizes_of(repeated), sizes_of(node.outputs[0])
        if repeated is None or small is None or full is None or math.prod(small) == math.prod(full):
            refused = "sizes are not known, or nothing is repeated"
        elif sizes_of(other) == full and _broadcast(small, full) == full:
            node.replace_input_with(place, repeated)
            return None
        elif number(other) is not None and is_read_once(value) and sizes_of(value) == full:
            _stand_before(model, expand, node, place)
            return None
        else:
            refused = "what is repeated meets neither a number nor a whole tensor"
    return refused


def _stand_before(model: ir.Model, expand: ir.Node, node: ir.Node, place: int) -> None:
    new, repeated = Replacement([expand, node], "expand"), expand.inputs[0]
    assert repeated is not None
    inputs = [*node.inputs]
    inputs[place] = repeated
    made = typed(new.write(node.op_type, *inputs), sizes_of(repeated) or [], repeated)
    new.finish(model.graph, new.write("Expand", made, expand.inputs[1]))


def _broadcast(*sizes: list[int]) -> list[int] | None:
    try:
        return [*np.broadcast_shapes(*sizes)]
    except ValueError:
        return None
