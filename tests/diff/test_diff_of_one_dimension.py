"""Two ONNX models of which one computes what has one dimension as if it had two, with channels last."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from orders_of_dimensions import Model, alike, edited, model, paired

from dort_compare.onnx_diff import diff

FIRST = """
    agraph (float[2, {c}, {l}] x) => (float[2, 8, {l}] y) {{
        wide = Conv<pads = [1, 1]>(x, w1)
        scaled = Mul(wide, scale)
        bent = Relu(scaled)
        deep = Conv<pads = [1, 1]>(bent, w2)
        summed = Add(deep, bent)
        y = Sigmoid(summed)
    }}"""
TWO_DIMENSIONS = """
    agraph (float[2, {l}, {c}] x) => (float[2, {l}, 8] Y) {{
        U1 = Unsqueeze(x, axes)
        T1 = Transpose<perm = {there}>(U1)
        C1 = Conv<pads = {pads}>(T1, W1)
        B1 = Transpose<perm = {back}>(C1)
        Wide = Squeeze(B1, axes)
        Scaled = Mul(Wide, Scale)
        Bent = Relu(Scaled)
        U2 = Reshape(Bent, widths)
        T2 = Transpose<perm = {there}>(U2)
        C2 = Conv<pads = {pads}>(T2, W2)
        B2 = Transpose<perm = {back}>(C2)
        Deep = Squeeze(B2, axes)
        Summed = Add(Deep, Bent)
        Y = Sigmoid(Summed)
    }}"""
HIGH = {"there": [0, 3, 1, 2], "back": [0, 2, 3, 1], "pads": [0, 1, 0, 1]}
WIDE = {"there": [0, 3, 1, 2], "back": [0, 2, 3, 1], "pads": [1, 0, 1, 0]}
"""Where the dimension of size 1 goes: before the one that there is, or behind."""


def both(channels: int, length: int, axis: int) -> tuple[Model, Model]:
    generator = np.random.default_rng(0)

    def values(*shape: int) -> np.ndarray:
        return (generator.standard_normal(shape) / 2).astype(np.float32)

    w1, w2, scale = values(8, channels, 3), values(8, 8, 3), values(8)
    sizes = {"c": channels, "l": length}
    first = model(FIRST, sizes, w1=w1, w2=w2, scale=scale.reshape(8, 1))
    second = model(
        TWO_DIMENSIONS,
        {**sizes, **(HIGH if axis == 1 else WIDE)},
        W1=np.expand_dims(w1, axis + 1),
        W2=np.expand_dims(w2, axis + 1),
        Scale=scale,
        axes=np.array([axis]),
        widths=np.array([2, 1, length, 8] if axis == 1 else [2, length, 1, 8]),
    )
    return first, second


SIZES = [(3, 10), (8, 10), (1, 10), (3, 8)]
FAULTS: dict[str, tuple[str, Callable[[onnx.NodeProto], None]]] = {
    "another operator": ("Summed", lambda node: setattr(node, "op_type", "Sub")),
    "a sum for a product": ("Scaled", lambda node: setattr(node, "op_type", "Add")),
    "another activation": ("Bent", lambda node: setattr(node, "op_type", "Tanh")),
    "in a convolution": ("C2", lambda node: node.attribute[0].ints.__setitem__(slice(4), [0, 0, 0, 2])),
    "another operand": ("Summed", lambda node: node.input.__setitem__(1, "Wide")),
}


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize(("channels", "length"), SIZES)
def test_a_dimension_that_comes_moves_and_goes_is_followed(
    channels: int, length: int, axis: int, swapped: bool
) -> None:
    models = both(channels, length, axis)
    found = diff(*(reversed(models) if swapped else models))
    assert found.verdict == "agree", str(found)
    assert {row.status for row in found.rows} <= {"equal", "noise"}
    assert alike(*models) - paired(found) <= ({("wide", "wide"), ("deep", "deep")} if swapped else set())


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(("channels", "length"), SIZES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_between_them_is_the_one_cause(fault: str, channels: int, length: int, swapped: bool) -> None:
    first, second = both(channels, length, 1)
    result, change = FAULTS[fault]
    models = first, edited(second, result, change)
    found = diff(*(reversed(models) if swapped else models))
    expected = {"C2": "deep"}.get(result, result.lower()) if swapped else result
    assert [cause.row.pair.second for cause in found.findings.causes] == [expected], str(found)


@pytest.mark.parametrize("reader", ["C1", "C2"])
def test_another_dimension_that_is_taken_for_the_channels_is_seen(reader: str) -> None:
    first, second = both(8, 8, 1)
    graph = second.graph
    graph.node.insert(0, onnx.helper.make_node("Transpose", ["x"], ["inner"], perm=[0, 2, 1]))
    graph.node[1].input[0] = "inner"
    graph.node[-1].output[0] = "last"
    graph.node.append(onnx.helper.make_node("Transpose", ["last"], ["Y"], perm=[0, 2, 1]))
    assert diff(first, second).verdict == "agree"
    turned = next(node for node in graph.node if node.output[0] == reader).input[0]

    def turn(node: onnx.NodeProto) -> None:
        node.attribute[0].ints[:] = [0, 2, 1, 3]

    found = diff(first, edited(second, turned, turn))
    (cause,) = found.findings.causes
    assert cause.row.pair.second in {turned, reader}, str(found)
