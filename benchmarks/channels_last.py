"""A model with channels last between its convolutions, as frameworks with that order export it."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import helper, numpy_helper

from dort_compare.align.orders import BY_ELEMENT

_FIRST, _LAST, _COLUMN = (0, 3, 1, 2), (0, 2, 3, 1), (1, 2, 0)


def channels_last(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same network, in which operators that work element by element hold images with their channels last.

    What all others read and make keeps its order, by transposes around them; so do inputs and outputs.
    """
    typed = onnx.shape_inference.infer_shapes(model)
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    del changed.graph.node[:], changed.graph.value_info[:]
    changed.graph.node.extend(_Turning(typed.graph, changed.graph).nodes())
    return changed


class _Turning:
    def __init__(self, graph: onnx.GraphProto, changed: onnx.GraphProto) -> None:
        self._graph, self._changed = graph, changed
        values = (*graph.input, *graph.value_info, *graph.output)
        self._ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in values}
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        self._held: set[str] = set()
        """Names under which what they say is held with channels last, or else first."""

    def nodes(self) -> Iterator[onnx.NodeProto]:
        made_last: set[str] = set()
        for node in self._graph.node:
            is_last = node.op_type in BY_ELEMENT and all(self._ranks.get(name) == 4 for name in node.output)
            turned = onnx.NodeProto()
            turned.CopyFrom(node)
            for slot, name in enumerate(node.input):
                if name in self._constants and is_last:
                    turned.input[slot] = self._constant(name)
                elif self._ranks.get(name) == 4 and (name in made_last) != is_last:
                    turned.input[slot] = f"{name} {'last' if is_last else 'first'}"
                    yield from self._transposed(name, turned.input[slot], _LAST if is_last else _FIRST)
                elif self._ranks.get(name) == 3 and is_last:
                    turned.input[slot] = f"{name} last"
                    yield from self._transposed(name, turned.input[slot], _COLUMN)
            made_last.update(node.output if is_last else ())
            yield turned
        for value in self._graph.output:
            if value.name in made_last:
                raise ValueError(f"output {value.name} has its channels last")

    def _transposed(self, name: str, turned: str, order: tuple[int, ...]) -> Iterator[onnx.NodeProto]:
        if turned not in self._held:
            self._held.add(turned)
            yield helper.make_node("Transpose", [name], [turned], turned, perm=order)

    def _constant(self, name: str) -> str:
        """That of the channels of an image, whose others are broadcast."""
        array = numpy_helper.to_array(self._constants[name])
        if array.ndim < 3:
            return name
        if f"{name} last" not in self._held:
            self._held.add(f"{name} last")
            last = array.transpose(_LAST) if array.ndim == 4 else array.transpose(_COLUMN)
            self._changed.initializer.append(numpy_helper.from_array(last.copy(), f"{name} last"))
        return f"{name} last"
