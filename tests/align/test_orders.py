"""The order of dimensions that transposes leave."""

from __future__ import annotations

import itertools

import onnx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from dort_compare.align.orders import Order, Orders, followed, moves_elements, reshaped
from dort_compare.layouts import inverse
from dort_compare.trace.dataflow import Dataflow

ORDERS = list(itertools.permutations(range(4)))
STEP = st.one_of(st.sampled_from(ORDERS), st.just("Neg"), st.just("Exp"), st.just("Softmax"), st.just("Add"))
SIZES = st.sampled_from([(2, 3, 4, 5), (3, 3, 3, 3), (1, 3, 1, 2), (2, 1, 1, 1)])


def flow_of(nodes: list[onnx.NodeProto], **constants: list[int]) -> Dataflow:
    tensors = [helper.make_tensor(name, TensorProto.INT64, [len(held)], held) for name, held in constants.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None] * 4)
    y = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)
    return Dataflow.of(helper.make_model(helper.make_graph(nodes, "g", [x], [y], tensors)), "the model")


@given(st.lists(STEP, min_size=1, max_size=8), SIZES)
def test_what_is_permuted_back_was_never_transposed(steps: list[tuple[int, ...] | str], sizes: tuple[int, ...]) -> None:
    value = plain = torch.randn(sizes)
    at = tuple(range(4))
    nodes, values, plains = [], [value], [plain]
    for i, step in enumerate(steps):
        name, result = f"v{i - 1}" if i else "x", f"v{i}"
        if isinstance(step, tuple):
            nodes.append(helper.make_node("Transpose", [name], [result], perm=step))
            value, at = value.permute(step), followed(at, step)
        elif step == "Softmax":
            nodes.append(helper.make_node(step, [name], [result], axis=1))
            value, plain = value.softmax(1), plain.softmax(at[1])
        elif step == "Add":
            nodes.append(helper.make_node(step, [name, name], [result]))
            value, plain = value + value, plain + plain
        else:
            nodes.append(helper.make_node(step, [name], [result]))
            function = {"Neg": torch.neg, "Exp": torch.exp}[step]
            value, plain = function(value), function(plain)
        values.append(value)
        plains.append(plain)
    orders = Orders(flow_of(nodes), {})
    for name, value, plain in zip(["x", *(f"v{i}" for i in range(len(steps)))], values, plains, strict=True):
        order = orders.see(name, tuple(value.shape))
        shown = value if order is None else value.permute(order)
        torch.testing.assert_close(shown.reshape(plain.shape), plain, equal_nan=True)


@given(st.sampled_from(ORDERS), st.sampled_from(ORDERS))
def test_orders_follow_one_another_and_are_undone(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    tensor = torch.randn(2, 3, 4, 5)
    assert torch.equal(tensor.permute(one).permute(other), tensor.permute(followed(one, other)))
    assert torch.equal(tensor.permute(one).permute(inverse(one)), tensor)


@pytest.mark.parametrize(
    ("order", "shape", "moves"),
    [
        ((0, 2, 1), (2, 3, 4), True),
        ((0, 2, 1), (2, 1, 4), False),
        ((1, 0, 2), (1, 3, 4), False),
        ((2, 1, 0), (2, 1, 4), True),
        ((0, 1, 2), (2, 3, 4), False),
    ],
)
def test_dimensions_of_one_element_move_none(order: tuple[int, ...], shape: tuple[int, ...], moves: bool) -> None:
    assert moves_elements(order, shape) == moves


@given(st.permutations(range(3)), st.permutations(range(4)), st.integers(0, 3), st.data())
def test_a_dimension_of_size_1_comes_and_goes(
    turn: list[int], again: list[int], axis: int, data: st.DataObject
) -> None:
    plain = torch.randn(data.draw(st.sampled_from([(2, 3, 4), (3, 3, 3), (1, 3, 1), (2, 1, 4)])))
    values = {"x": plain.permute(turn)}
    values["wider"] = values["x"].unsqueeze(axis)
    values["turned"] = values["wider"].permute(again)
    gone = data.draw(st.sampled_from([dim for dim, size in enumerate(values["turned"].shape) if size == 1]))
    values["y"] = values["turned"].squeeze(gone)
    nodes = [
        helper.make_node("Unsqueeze", ["x", "axes"], ["wider"]),
        helper.make_node("Transpose", ["wider"], ["turned"], perm=again),
        helper.make_node("Reshape", ["turned", "sizes"], ["y"]),
    ]
    orders = Orders(flow_of(nodes, axes=[axis], sizes=list(values["y"].shape)), {"x": inverse(tuple(turn))})
    for name, value in values.items():
        order = orders.see(name, tuple(value.shape))
        shown = value if order is None else value.permute(order)
        assert torch.equal(shown.flatten(), plain.flatten())


@pytest.mark.parametrize(
    ("before", "after", "order"),
    [
        ((2, 5, 8), (2, 1, 5, 8), (0, 1, 3, 2)),
        ((2, 5, 8), (2, 5, 1, 8), (0, 3, 2, 1)),
        ((2, 1, 8), (2, 8), (0, 1)),
        ((2, 1, 8), (2, 1, 8), (0, 2, 1)),
        ((2, 5, 1), (2, 5), (0, 1)),
        ((1, 5, 8), (5, 8), (1, 0)),
        ((2, 5, 8), (2, 40), None),
        ((2, 5, 8), (5, 2, 8), None),
        ((2, 5, 8), (2, 5), None),
    ],
)
def test_dimensions_that_stay_keep_their_order(before: Order, after: Order, order: Order | None) -> None:
    assert reshaped((0, 2, 1), before, after) == order


def test_two_orders_that_meet_are_none() -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 1, 3, 2]),
        helper.make_node("Add", ["x", "t"], ["s"]),
        helper.make_node("Conv", ["t", "x"], ["c"]),
        helper.make_node("Transpose", ["x"], ["r"]),
    ]
    orders = Orders(flow_of(nodes), {})
    shape = (3, 3, 3, 3)
    assert [orders.see(name, shape) for name in ("x", "t", "s", "c", "r")] == [
        None,
        (0, 1, 3, 2),
        None,
        None,
        (3, 2, 1, 0),
    ]
