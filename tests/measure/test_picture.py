"""Pictures of a value's elements, and of which values they are taken."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch
from samples_of_steps import executed

from dort_compare.measure.distance.metrics import distance
from dort_compare.measure.picture import picture
from dort_compare.measure.pictures import KEPT, Pictures
from dort_compare.measure.rows import Row

ROW = Row("forward", 0, "mul", "mul", "aten.mul.Tensor", "", "", "float32", (4,), "diverges", noise_floor=1.0)


def test_counts_sides_and_difference() -> None:
    torch_side = torch.tensor([0.0, 1.0, 2.0, 4.0])
    onnx_side = torch.tensor([0.0, 1.0, 2.05, 3.0])
    found = picture(torch_side, onnx_side, torch_side.double(), (3,))
    assert (found.low, found.high, found.equal, found.unfinite) == (0.0, 4.0, 2, 0)
    assert [i for i, n in enumerate(found.torch) if n] == [0, 10, 20, 39]
    assert [i for i, n in enumerate(found.onnx) if n] == [0, 10, 20, 30]
    assert found.powers == ((-2, 1), (0, 1))
    assert [(each.index, each.torch, each.onnx, each.exact) for each in found.worst] == [
        ((3,), 4.0, 3.0, 4.0), ((2,), 2.0, pytest.approx(2.05), 2.0),
    ]  # fmt: skip
    assert found.along[0] == pytest.approx((0, 0, 0.05, 1.0), abs=1e-6)


def test_what_is_not_finite_is_counted_and_becomes_strict_json() -> None:
    torch_side = torch.tensor([math.nan, math.inf, 1.0, math.nan])
    onnx_side = torch.tensor([math.nan, -math.inf, 1.0, 1.0])
    found = picture(torch_side, onnx_side, None, (1,))
    assert (found.equal, found.unfinite, found.powers) == (2, 2, ())
    data = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert data["worst"][0] == {"index": [1], "torch": "inf", "onnx": "-inf", "exact": None}
    assert data["along"] == [[0.0, "inf", 0.0, "inf"]]


def test_integers_that_float64_rounds_are_told_apart() -> None:
    torch_side = torch.tensor([2**53, 7, -(2**63)])
    onnx_side = torch.tensor([2**53 + 1, 7, 2**63 - 1])
    found = picture(torch_side, onnx_side, None, None)
    assert (found.equal, found.powers, found.along) == (1, ((0, 1), (19, 1)), ((1.0, 0.0, 2.0**64),))
    assert [(each.index, each.torch, each.onnx) for each in found.worst] == [
        ((2,), -(2**63), 2**63 - 1), ((0,), 2**53, 2**53 + 1),
    ]  # fmt: skip
    worst = json.loads(json.dumps(found.to_json(), allow_nan=False))["worst"]
    assert worst[1] == {"index": [0], "torch": "9007199254740992", "onnx": "9007199254740993", "exact": None}


def test_unsigned_integers_keep_their_order() -> None:
    one, other = (torch.tensor([number], dtype=torch.uint64) for number in (2**64 - 1, 1))
    found = picture(one, other, None, None)
    assert (found.along, found.worst[0].torch, found.worst[0].onnx) == (((2.0**64,),), 2**64 - 1, 1)


@pytest.mark.parametrize("shape", [(), (1,), (3, 1), (2, 3, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_every_shape_and_dtype(shape, dtype) -> None:
    one, other = torch.zeros(shape, dtype=dtype), torch.ones(shape, dtype=dtype)
    found = picture(one, other, None, None)
    assert sum(found.torch) == sum(found.onnx) == one.numel() == found.looked_at
    assert found.worst[0].index == (0,) * len(shape)
    assert [len(parts) for parts in found.along] == list(shape)
    assert found.equal == 0


def test_all_nan() -> None:
    nan = torch.full((3,), math.nan)
    found = picture(nan, torch.zeros(3), None, (0,))
    assert (found.low, found.high, sum(found.torch), found.unfinite) == (0.0, 0.0, 0, 3)


def test_a_large_tensor_is_thinned_out_and_its_worst_element_still_told() -> None:
    one = torch.zeros(7, 300, 1000)
    other = one.clone()
    other[5, 123, 457] = 3.0
    found = picture(one, other, None, (5, 123, 457))
    assert found.numel == 2_100_000
    assert found.looked_at <= 2**14
    assert [(each.index, each.onnx) for each in found.worst] == [((5, 123, 457), 3.0)]
    other[:, :, ::2] = 1.0
    places = [each.index for each in picture(one, other, None, None).worst]
    assert all(other[place] == 1.0 for place in places)


def test_what_diverges_comes_first_and_then_what_errs_most() -> None:
    pictures, rows = Pictures(), []
    for i in range(3 * KEPT):
        status = "diverges" if i == KEPT else "ok" if i % 2 else "inherits"
        own = torch.tensor([1.0 + i])
        gap = distance(torch.zeros(1), own)
        rows.append(replace(ROW, fx_node=f"n{i}", status=status, inherited=gap, local=gap))
        pictures.see(executed(torch.zeros(1), own), None, rows[-1])
    kept = [row.fx_node for row in pictures.on(rows) if row.picture]
    inheriting = [row.fx_node for row in rows if row.status == "inherits"]
    assert kept == sorted([f"n{KEPT}", *inheriting[-KEPT + 1 :]], key=lambda name: int(name[1:]))


def test_no_picture_of_what_is_equal_empty_complex_or_not_compared() -> None:
    one = torch.ones(2)
    same = distance(one, one)
    for value, own, changes in [
        (one, one, {"inherited": same, "status": "ok"}),
        (one, None, {"status": "unaligned"}),
        (one[:0], one[:0], {"inherited": distance(one, one + 1)}),
        (one, torch.ones(3), {"inherited": distance(one, torch.ones(3))}),
        (one + 1j, one + 2j, {"inherited": distance(one + 1j, one + 2j)}),
    ]:
        pictures, row = Pictures(), replace(ROW, **changes)
        pictures.see(executed(value, own), None, row)
        assert [each.picture for each in pictures.on([row])] == [None]
