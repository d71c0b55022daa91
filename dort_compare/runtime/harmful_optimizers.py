"""The optimizers of ONNX Runtime (1.31) that would harm a model: change its values, or leave it without some."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import onnx
from onnx import numpy_helper

from dort_compare.captures import bodies, readers_of, with_bodies

_NUMBERS = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.INT64, onnx.TensorProto.INT32)
_PRODUCTS = ("MatMul", "FusedMatMul")
_FAR = 2.0**12


def harmful_for(model: onnx.ModelProto) -> list[str]:
    """Their names, as ``disabled_optimizers`` of a session takes them."""
    graphs = [model.graph, *(body for node in with_bodies(model.graph.node) for body in bodies(node))]
    numbers = {name: number for graph in graphs for name, number in _numbers(graph)}
    readings = [_Reading(graph, numbers) for graph in graphs]
    return [name for names, harms in _HARMFUL.items() if any(map(harms, readings)) for name in names]


@dataclass(frozen=True)
class _Reading:
    """A graph, and by name the constants in the model that hold one number."""

    graph: onnx.GraphProto
    numbers: Mapping[str, float]

    @cached_property
    def makers(self) -> Mapping[str, onnx.NodeProto]:
        return {name: node for node in self.graph.node for name in node.output}

    @cached_property
    def readers(self) -> Mapping[str, Sequence[onnx.NodeProto]]:
        return readers_of(self.graph.node)

    def calls(self, op_type: str, operands: int = 1) -> Iterator[onnx.NodeProto]:
        """The nodes of that type, of a result and so many operands at least."""
        found = (node for node in self.graph.node if node.op_type == op_type)
        return (node for node in found if node.output and len(node.input) >= operands)

    def readers_of(self, node: onnx.NodeProto) -> Sequence[onnx.NodeProto]:
        return self.readers.get(node.output[0], ())

    def is_read_by(self, node: onnx.NodeProto, op_type: str) -> bool:
        return any(reader.op_type == op_type for reader in self.readers_of(node))

    def factor_of(self, node: onnx.NodeProto) -> float | None:
        """The number that a node multiplies with or divides by."""
        found = (self.numbers.get(name) for name in node.input if node.op_type in ("Mul", "Div"))
        return next((number for number in found if number is not None), None)


def _numbers(graph: onnx.GraphProto) -> Iterator[tuple[str, float]]:
    made = [(a.t, node.output[0]) for node in graph.node if node.op_type == "Constant" for a in node.attribute]
    for tensor, name in [(tensor, tensor.name) for tensor in graph.initializer] + made:
        is_one = all(size == 1 for size in tensor.dims) and tensor.data_location != onnx.TensorProto.EXTERNAL
        if is_one and tensor.data_type in _NUMBERS:
            with suppress(ValueError):  # a stranger's, which holds less or more than it says
                yield name, float(numpy_helper.to_array(tensor).reshape(()))


def _keeps_a_factor_in_float32(at: _Reading) -> bool:
    """A factor before or behind products is taken into them as a float32: a float64 product loses half of its digits,
    and one of float32 may leave the range before a factor far from 1 that has led back into it."""
    values = (*at.graph.input, *at.graph.value_info, *at.graph.output)
    if any(value.type.tensor_type.elem_type == onnx.TensorProto.DOUBLE for value in values):
        return True
    waiting = [node for node in at.graph.node if _is_far(at.factor_of(node))]
    seen = {name for node in waiting for name in node.output}
    while waiting:
        node = waiting.pop()
        makers = (at.makers[name] for name in node.input if name in at.makers)
        for beside in (*at.readers_of(node), *makers):
            if beside.op_type in _PRODUCTS:
                return True
            if at.factor_of(beside) is not None and seen.isdisjoint(beside.output):
                seen.update(beside.output)
                waiting.append(beside)
    return False


def _is_far(factor: float | None) -> bool:
    return factor is not None and not 1 / _FAR <= abs(factor) <= _FAR


def _takes_away_what_is_read(at: _Reading) -> bool:
    """A copy that is returned gives its name to what it is a copy of, of which GemmTransposeFusion, where it has been
    there before, has lost the other readers."""
    copied = {node.output[0]: node.input[0] for node in at.calls("Identity")}
    waiting = [value.name for value in at.graph.output]
    while waiting:
        source = copied.pop(waiting.pop(), None)
        if source is None:
            continue
        if len(at.readers[source]) > 1:
            return True
        waiting.append(source)
    return False


def _takes_every_power_for_the_second(at: _Reading) -> bool:
    """What is divided by the root of a mean of any power becomes a layer norm."""
    powers = (node for node in at.calls("Pow", 2) if at.is_read_by(node, "ReduceMean"))
    return any(at.numbers.get(node.input[1]) != 2 for node in powers)


def _forgets_a_transpose(at: _Reading) -> bool:
    """A batch norm is folded into the product of matrices before it, whatever is transposed between."""
    waiting = [node.input[0] for node in at.calls("BatchNormalization")]
    moves = {node.output[0]: node for kind in ("Reshape", "Transpose") for node in at.calls(kind)}
    while waiting:
        move = moves.pop(waiting.pop(), None)
        if move is not None:
            if move.op_type == "Transpose":
                return True
            waiting.append(move.input[0])
    return False


def _moves_pads_into_a_pool(at: _Reading) -> bool:
    """A pool with pads of its own leaves windows out that begin in them, and may not have pads as wide as a window."""
    return any(at.is_read_by(node, "AveragePool") for node in at.calls("Pad"))


_HARMFUL: Mapping[tuple[str, ...], Callable[[_Reading], bool]] = {
    ("MatMulScaleFusion",): _keeps_a_factor_in_float32,
    ("EliminateIdentity",): _takes_away_what_is_read,
    ("LayerNormFusion", "LayerNormFusionL1"): _takes_every_power_for_the_second,
    ("MatMul_BatchNormalization_Fusion",): _forgets_a_transpose,
    ("Pad_Fusion",): _moves_pads_into_a_pool,
}
