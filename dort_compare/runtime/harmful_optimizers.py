"""The optimizers of ONNX Runtime (1.31) that would harm a model: change its values, or leave it without some.

What they look through on their way to a pattern, such as copies, casts and transposes, differs from one to the next,
and so what they might meet is enough.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import onnx
from onnx import numpy_helper

from dort_compare.captures import bodies, readers_of, with_bodies

Graph = onnx.GraphProto | onnx.FunctionProto
_SCALES = ("Mul", "Div")
_MOVES = ("Expand", "Flatten", "Reshape", "Slice", "Squeeze", "Unsqueeze")
_PRODUCTS = ("FusedMatMul", "Gemm", "MatMul")
_FAR = 2.0**8
"""From 1, for a factor: several together, as before and behind a product, still leave room in the range of float32."""


def harmful_for(model: onnx.ModelProto) -> list[str]:
    """Their names, as ``disabled_optimizers`` of a session takes them.

    MatMulScaleFusion
        takes factors beside products of matrices into them as one float32: a float64 product loses half of its digits,
        another leaves the range before a factor far from 1 has led back into it.
    EliminateIdentity
        gives the name of a copy that is returned to what it is a copy of, of which GemmTransposeFusion, where it has
        been there before, has lost the other readers.
    LayerNormFusion
        takes the mean of any powers for one of squares.
    MatMul_BatchNormalization_Fusion
        folds a batch norm into the product before it, whatever is transposed between.
    Pad_Fusion
        moves pads into an average pool, which leaves windows out that begin in its own, and may not have pads as wide
        as a window.
    """
    graphs = [*_graphs(model.graph), *(graph for function in model.functions for graph in _graphs(function))]
    op_types = {node.op_type for graph in graphs for node in graph.node}
    numbers = _numbers(graphs)
    found = []
    if any(_has_float64(graph) or _has_far_factors(graph, numbers) for graph in graphs):
        found.append("MatMulScaleFusion")
    if any(map(_returns_copy_of_what_is_read, graphs)):
        found.append("EliminateIdentity")
    if op_types >= {"Pow", "ReduceMean"} and not _squares_alone(graphs, numbers):
        found += ["LayerNormFusion", "LayerNormFusionL1"]
    if "BatchNormalization" in op_types and not op_types.isdisjoint({"Reshape", "Transpose"}):
        found.append("MatMul_BatchNormalization_Fusion")
    if op_types >= {"Pad", "AveragePool"}:
        found.append("Pad_Fusion")
    return found


def _graphs(graph: Graph) -> Iterator[Graph]:
    yield graph
    for node in with_bodies(graph.node):
        yield from bodies(node)


def _has_float64(graph: Graph) -> bool:
    return any(value.type.tensor_type.elem_type == onnx.TensorProto.DOUBLE for value in _declared(graph))


def _has_far_factors(graph: Graph, numbers: Mapping[str, set[float]]) -> bool:
    """Whether a constant number that is far from 1, or that is not known as it is computed of constants, is a factor of
    what is before or behind a product of matrices, with nothing but constants joining on the way."""
    constants, folded = _constants(graph)
    of_one = folded - set(filter(None, map(_of_many, _declared(graph))))

    def is_far(name: str) -> bool:
        return name in of_one or any(not 1 / _FAR <= abs(number) <= _FAR for number in numbers.get(name, ()))

    data = [set(node.input[:1] if node.op_type in _MOVES else node.input) - constants - {""} for node in graph.node]
    makers = {name: index for index, node in enumerate(graph.node) for name in node.output}
    readers: dict[str, list[int]] = defaultdict(list)
    for index, names in enumerate(data):
        for name in names:
            readers[name].append(index)
    waiting = [i for i, node in enumerate(graph.node) if node.op_type in _SCALES and any(map(is_far, node.input))]
    seen = set(waiting)
    while waiting:
        index = waiting.pop()
        beside = {each for name in graph.node[index].output for each in readers[name]}
        beside.update(makers[name] for name in data[index] if name in makers)
        beside -= seen
        if any(graph.node[each].op_type in _PRODUCTS for each in beside):
            return True
        seen |= beside
        waiting += [each for each in beside if len(data[each]) == 1]
    return False


def _constants(graph: Graph) -> tuple[set[str], set[str]]:
    """The names of constants, what is computed of them alone too, and the latter."""
    constants = {tensor.name for tensor in graph.initializer} if isinstance(graph, onnx.GraphProto) else set()
    folded: set[str] = set()
    for node in graph.node:
        if node.op_type == "Constant":
            constants.update(node.output)
        elif node.input and constants.issuperset(filter(None, node.input)):
            folded.update(node.output)
            constants.update(node.output)
    return constants, folded


def _declared(graph: Graph) -> Sequence[onnx.ValueInfoProto]:
    values = list(graph.value_info)
    return [*values, *graph.input, *graph.output] if isinstance(graph, onnx.GraphProto) else values


def _of_many(value: onnx.ValueInfoProto) -> str | None:
    """The name of a value that is known to have more than one element."""
    return value.name if any(dim.dim_value > 1 for dim in value.type.tensor_type.shape.dim) else None


def _returns_copy_of_what_is_read(graph: Graph) -> bool:
    """Whether an output is a copy, at any number of removes, of a value that other nodes read."""
    copied = {node.output[0]: node.input[0] for node in graph.node if _is_copy(node)}
    waiting = [value if isinstance(value, str) else value.name for value in graph.output]
    readers = readers_of(graph.node) if not copied.keys().isdisjoint(waiting) else {}
    while waiting:
        source = copied.pop(waiting.pop(), None)
        if source is not None:
            if len(readers[source]) > 1:
                return True
            waiting.append(source)
    return False


def _is_copy(node: onnx.NodeProto) -> bool:
    return node.op_type == "Identity" and bool(node.output) and any(node.input)


def _squares_alone(graphs: Iterable[Graph], numbers: Mapping[str, set[float]]) -> bool:
    """Whether every power is known to be the second."""
    powers = (node for graph in graphs for node in graph.node if node.op_type == "Pow")
    return all(numbers.get(node.input[1] if len(node.input) > 1 else "") == {2} for node in powers)


def _numbers(graphs: Iterable[Graph]) -> Mapping[str, set[float]]:
    """The constants of one element, by name: of several graphs some may bear one."""
    found: dict[str, set[float]] = defaultdict(set)
    for graph in graphs:
        for node in graph.node:
            if node.op_type == "Constant" and node.output:
                for attribute in node.attribute:
                    found[node.output[0]].update(_number_of(attribute))
        for tensor in graph.initializer if isinstance(graph, onnx.GraphProto) else ():
            found[tensor.name].update(_number_in(tensor))
    return found


def _number_of(attribute: onnx.AttributeProto) -> list[float]:
    plain = {"value_float": attribute.f, "value_int": attribute.i}
    return [float(plain[attribute.name])] if attribute.name in plain else _number_in(attribute.t)


def _number_in(tensor: onnx.TensorProto) -> list[float]:
    if any(size != 1 for size in tensor.dims) or tensor.data_location == onnx.TensorProto.EXTERNAL:
        return []
    with suppress(ValueError, TypeError):  # a stranger's, which holds less or more than it says, or words
        return [float(numpy_helper.to_array(tensor).reshape(()))]
    return []
