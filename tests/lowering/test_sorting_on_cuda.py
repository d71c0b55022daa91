"""Sorting as it is lowered for CUDA devices, run on the CPU: its ONNX nodes ask nothing of TopK that CUDA's gets wrong.

That takes no NaN, no infinity and no end of its dtype's range, and leaves equal elements of long rows in any order.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from op_calls import Call, complaints
from op_rows import ROWS, Row, cases
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode

from dort_compare import DebugBackend
from dort_compare.lowering import lower
from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops import sorting
from dort_compare.runtime import newest_opset

pytestmark = pytest.mark.usefixtures("lowered_for_cuda")

aten = torch.ops.aten
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
DTYPES = (*FLOATS, torch.int64, torch.int32, torch.uint8, torch.bool)
SORTING = ("sort", "topk", "kthvalue", "median", "nanmedian", "mode", "_unique2")
CASES = cases(row for row in ROWS if str(row.target).split(".")[1] in SORTING)
DIMS = (
    ((2000,), 0),
    ((3, 300), -1),
    ((300, 3), 0),
    ((2, 300, 2), 1),
    ((2, 3, 5), -3),
    ((0,), 0),
    ((0, 3), 1),
    ((3, 0), 1),
)


@pytest.fixture
def unordered(monkeypatch: pytest.MonkeyPatch) -> None:
    """TopK leaves equal elements in the order that is not theirs."""
    top = sorting._top

    def from_behind(op: Builder, keys: ir.Value, count: ir.Value, dim: int, largest: bool) -> ir.Value:
        reversed_ = op.Slice(keys, [-1], [-(2**62)], [dim], [-1])
        last = op.Sub(op.Gather(op.Shape(keys), dim, axis=0), 1)
        return op.Sub(last, top(op, reversed_, count, dim, largest))

    monkeypatch.setattr(sorting, "_top", from_behind)


def awkward(dtype: torch.dtype, *shape: int) -> Tensor:
    """Ties, zeros of both signs, the ends of the range and what is next to them, infinities and NaN; neighbours."""
    generator = torch.Generator().manual_seed(0)
    if dtype.is_floating_point:
        limits = torch.finfo(dtype)
        some = [0.0, -0.0, 1.0, -1.0, limits.max, limits.tiny, limits.tiny / 2, torch.inf, torch.nan, torch.nan]
        values = torch.tensor([*some, *(-x for x in some)], dtype=dtype)
        values = torch.cat([values, *(values.nextafter(torch.tensor(end, dtype=dtype)) for end in (-9.0, 9.0))])
    elif dtype == torch.bool:
        values = torch.tensor([False, True])
    else:
        low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        near = torch.tensor([low, low + 1, high - 1, high, 0, 1, 3])
        values = torch.cat([near, near // 2**20]).to(dtype)
    return values[torch.randint(len(values), shape, generator=generator)]


def sorts(dtype: torch.dtype) -> Iterator[Call]:
    for shape, dim in DIMS:
        for descending in (False, True):
            options = {"stable": True, "dim": dim, "descending": descending}
            yield Call(aten.sort.stable, (awkward(dtype, *shape),), options)
    yield Call(aten.sort.stable, (awkward(dtype),), {"stable": True})


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sorts_are_stable_with_nan_as_the_largest(dtype: torch.dtype) -> None:
    assert not complaints(sorts(dtype), newest_opset(), units=0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.usefixtures("unordered")
def test_sorts_are_stable_whatever_order_equal_elements_are_left_in(dtype: torch.dtype) -> None:
    assert not complaints(sorts(dtype), newest_opset(), units=0)


@pytest.mark.parametrize("share", [0.5, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("row", "dtype"), CASES)
@pytest.mark.usefixtures("unordered")
def test_values_are_torchs(row: Row, dtype: torch.dtype, share: float) -> None:
    assert not complaints(row.drawn(dtype, share), newest_opset(), row.units, row.scale)


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_places_in_a_long_row_do_not_outweigh_the_last_bit(dtype: torch.dtype, largest: bool) -> None:
    one = torch.ones((), dtype=dtype)
    below, above = one.nextafter(one * 0), one.nextafter(one * 2)
    x = torch.stack([above, one, below, -below, -one, -above]).repeat(200_000)
    call = Call(aten.sort.stable, (x,), {"stable": True, "descending": largest})
    assert not complaints([call], newest_opset(), units=0)


def topk_inputs(call: Call) -> Iterator[np.ndarray]:
    """What the TopK nodes of a call's model are given, with the axis moved to the end."""
    model = ir.to_proto(call.lowered(newest_opset()).model)
    nodes = [node for node in model.graph.node if node.op_type == "TopK"]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=node.input[0]) for node in nodes)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    feeds = {name: x.numpy() for name, x in zip(names, call.inputs(), strict=True)}
    for node, given in zip(nodes, session.run(None, feeds), strict=True):
        yield np.moveaxis(given, onnx.helper.get_node_attr_value(node, "axis"), -1)


CALLS: dict[str, Callable[[Tensor], Call]] = {
    "sort": lambda x: Call(aten.sort.default, (x, 0), {}),
    "descending": lambda x: Call(aten.sort.default, (x, 0, True), {}),
    "topk": lambda x: Call(aten.topk.default, (x, 3, 0), {}),
    "kthvalue": lambda x: Call(aten.kthvalue.default, (x, 3, 0), {}),
    "median": lambda x: Call(aten.median.dim, (x, 0), {}),
    "nanmedian": lambda x: Call(aten.nanmedian.dim, (x, 0), {}),
    "mode": lambda x: Call(aten.mode.default, (x, 0), {}),
}


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_keys_are_inside_the_range_and_the_last_ones_distinct(name: str, dtype: torch.dtype) -> None:
    """The first keys of a float64 may be equal: their order is not relied upon."""
    given = list(topk_inputs(CALLS[name](awkward(dtype, 400, 2))))
    assert given
    for keys in given:
        limits: Any = np.finfo(keys.dtype) if keys.dtype.kind == "f" else np.iinfo(keys.dtype)
        assert ((keys > limits.min) & (keys < limits.max)).all()
    assert all(len(np.unique(row)) == len(row) for row in given[-1])


def test_a_dynamic_row() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        each = x, x.double(), x.nan_to_num(0, 0, 0).long()
        return tuple(part for x in each for part in x.sort(dim=0, stable=True))

    compiled = torch.compile(function, backend=DebugBackend(providers=["cpu"], fallback=False), dynamic=True)
    for length in (5, 70):
        x = awkward(torch.float32, length, 3)
        torch.testing.assert_close(compiled(x), function(x), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_what_torch_traced_on_cuda_is_lowered_so(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    graph = fx.Graph()
    x = graph.placeholder("x")
    with FakeTensorMode():
        x.meta["val"] = torch.empty(5, device=device)
        values = graph.call_function(aten.kthvalue.default, (x, 2))
        values.meta["val"] = aten.kthvalue.default(x.meta["val"], 2)
    place = graph.call_function(operator.getitem, (values, 1))
    place.meta["val"] = values.meta["val"][1]
    graph.output((place,))
    model = ir.to_proto(lower(fx.GraphModule({}, graph), "inference", newest_opset()).model)
    assert ("Range" in [node.op_type for node in model.graph.node]) == (device == "cuda")
