"""What a graph computes of constants and known sizes alone, such as a causal mask."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from dort_compare.randomness import RANDOM_OPERATORS
from dort_compare.rewrites.graph import holds_graphs, sizes_of

Array = np.ndarray[Any, Any]


def known(value: ir.Value) -> Array | None:
    """The elements of a value that depends on nothing but constants and sizes, and not on chance; None of others.

    They are computed once, and kept as the value's ``const_value``.
    """
    if value.const_value is None:
        shapes = _shapes_behind(value)
        if shapes is None:
            return None
        value.const_value = ir.tensor(_computed(value, shapes))
    return value.const_value.numpy()


def known_number(value: ir.Value | None) -> float | None:
    """The one number that a value of no dimension always is; None of others."""
    elements = known(value) if value is not None and sizes_of(value) == [] else None
    return None if elements is None else float(elements)


def _shapes_behind(value: ir.Value) -> dict[ir.Value, Array] | None:
    """The known shapes that a value depends on; None where it depends on more than these and constants."""
    found: dict[ir.Value, Array] = {}
    met, waiting = {value}, [value]
    while waiting:
        each = waiting.pop()
        made = each.producer()
        if each.const_value is not None and (made is None or made.op_type == "Constant"):
            continue
        if made is None or made.graph is not value.graph or made.op_type in RANDOM_OPERATORS or holds_graphs(made):
            return None
        if made.op_type == "Shape" and (sizes := sizes_of(made.inputs[0])) is not None:
            start, end = (made.attributes[n].as_int() if n in made.attributes else None for n in ("start", "end"))
            found[each] = np.array(sizes[start:end], np.int64)
            continue
        waiting += {operand for operand in made.inputs if operand is not None} - met
        met.update(waiting)
    return found


def _computed(value: ir.Value, shapes: dict[ir.Value, Array]) -> Array:
    assert value.graph is not None
    graph = ir.convenience.extract(value.graph, [*shapes], [value])
    proto = ir.to_proto(ir.Model(graph, ir_version=10))
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {shape.name: sizes for shape, sizes in shapes.items()})[0]
