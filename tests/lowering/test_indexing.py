"""Sums over indices that repeat, results whose shape depends on values, strides, values that nobody has set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from op_calls import Call
from torch import Tensor

import dort_compare
from dort_compare.errors import UnsupportedGraphError
from dort_compare.provenance import OPAQUE
from dort_compare.runtime import Program, SessionSettings, newest_opset

aten = torch.ops.aten
TWO_THREADS = SessionSettings(("cpu",), {"intra_op_num_threads": 2})


def sums() -> dict[str, Call]:
    torch.manual_seed(0)
    rows, columns = torch.randint(5, (5000,)), torch.randint(7, (5000,))
    return {
        "index_put of one index": Call(aten.index_put.default, (new(5, 7), [rows], new(5000, 7), True), {}),
        "index_put of two": Call(aten.index_put.default, (new(5, 7, 3), [rows, columns], new(5000, 3), True), {}),
        "index_put behind": Call(aten.index_put.default, (new(2, 5), [None, rows], new(2, 5000), True), {}),
        "index_add": Call(aten.index_add.default, (new(5, 7), 0, rows, new(5000, 7)), {}),
        "scatter_add": Call(aten.scatter_add.default, (new(5), 0, rows, new(5000)), {}),
        "put": Call(aten.put.default, (new(5), rows, new(5000), True), {}),
    }


def new(*shape: int) -> Tensor:
    return torch.randn(shape)


@pytest.mark.parametrize("name", sums())
def test_sums_over_repeated_indices_do_not_race(name: str) -> None:
    call = sums()[name]
    lowered = call.lowered(newest_opset())
    assert not any(node.op_type == "ScatterND" for node in lowered.model.graph)
    program = Program(lowered.model, lowered.signature, TWO_THREADS)
    first = program(*call.inputs())[0].clone()
    torch.testing.assert_close(first, call(), rtol=1e-5, atol=1e-3)
    assert all(torch.equal(program(*call.inputs())[0], first) for _ in range(20))


EMPTY: dict[str, Call] = {
    "empty": Call(aten.empty.memory_format, ([2, 3],), {"dtype": torch.int64}),
    "empty_strided": Call(aten.empty_strided.default, ([2, 3], [1, 2]), {}),
    "empty_permuted": Call(aten.empty_permuted.default, ([2, 3], [1, 0]), {"dtype": torch.bool}),
    "new_empty": Call(aten.new_empty.default, (new(2), [2, 3]), {}),
    "empty_like": Call(aten.empty_like.default, (new(2, 3).half(),), {}),
}


@pytest.mark.parametrize("name", EMPTY)
def test_values_that_nobody_has_set_are_marked_as_not_to_be_compared(name: str) -> None:
    call = EMPTY[name]
    (value,) = call.lowered(newest_opset()).model.graph.outputs
    assert value.metadata_props[OPAQUE] == "torch leaves these values as they were in memory"
    (zeros,) = call.on_onnx_runtime(newest_opset())
    assert (zeros.dtype, zeros.shape) == (call().dtype, (2, 3))
    assert not zeros.any()


STRIDED: dict[str, Callable[[Tensor], Tensor]] = {
    "of a transposed tensor": lambda x: (x * 2).t().as_strided((2, 3), (2, 1), 1).sin(),
    "of a contiguous one": lambda x: (x * 2).as_strided((3, 2), (1, 4), 2).sin(),
    "of the transposed operand": lambda x: (x.t() + 1).as_strided((2, 3), (2, 1), 1).sin(),
    "that overlap": lambda x: (x * 2).as_strided((4, 3), (2, 2)).contiguous().sin(),
}


@pytest.mark.parametrize("name", STRIDED)
def test_strides_count_in_memory(name: str) -> None:
    backend = dort_compare.DebugBackend(providers=["cpu"])
    torch._dynamo.reset()
    x = new(4, 5).requires_grad_()
    output, expected = torch.compile(STRIDED[name], backend=backend)(x), STRIDED[name](x)
    torch.testing.assert_close(output, expected, rtol=0, atol=0)
    grad = torch.randn_like(expected)
    torch.testing.assert_close(torch.autograd.grad(output, x, grad), torch.autograd.grad(expected, x, grad))


def test_strides_that_leave_the_values_are_refused() -> None:
    part, spread = new(4, 6)[1:3], new(3, 1).expand(3, 4)
    refused = {
        "read memory around the tensor": Call(aten.as_strided.default, (part, [3, 6], [6, 1], 0), {}),
        "does not fill its memory": Call(aten.as_strided.default, (spread, [2], [1], 0), {}),
    }
    for reason, call in refused.items():
        with pytest.raises(UnsupportedGraphError, match=reason):
            call.lowered(newest_opset())


SELECTED: dict[str, Callable[[Tensor], Any]] = {
    "a mask": lambda x: x[x > 0] * 2,
    "a mask of rows": lambda x: x[x[:, 0] > 0].sum(0),
    "nonzero": lambda x: (x > 0).nonzero() + 1,
    "masked_select": lambda x: x.masked_select(x > 0).exp(),
    "a mask written": lambda x: torch.index_put(x, (x > 0,), -x[x > 0]),
}


@pytest.mark.parametrize("name", SELECTED)
def test_results_whose_shape_depends_on_values(name: str) -> None:
    """The checks of sizes that torch writes beside them have no lowering."""
    backend = dort_compare.DebugBackend(providers=["cpu"])
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(SELECTED[name], backend=backend, fullgraph=True)
        for x in (new(5, 3), new(5, 3), -torch.ones(5, 3), torch.ones(5, 3)):
            torch.testing.assert_close(compiled(x), SELECTED[name](x))
    assert not [
        fallback
        for fallback in backend.fallbacks
        if fallback.target.startswith("aten.") and "assert" not in fallback.target
    ]


PICKED: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], bool]] = {
    "rows": (lambda x, i: x.gather(0, i.view(-1, 1).expand(-1, 5)), True),
    "columns": (lambda x, i: x.gather(-1, i.expand(4, -1)), False),
    "columns of rows": (lambda x, i: x.gather(1, i[None, :].expand(4, 3)), False),
    "columns by an index": (lambda x, i: x[:, i], False),
    "columns by an index from behind": (lambda x, i: x[:, i - 5], False),
    "selected columns": (lambda x, i: x.index_select(-1, i), False),
    "columns of no rows": (lambda x, i: x[:0].index_select(1, i), True),
    "no columns": (lambda x, i: x.index_select(1, i[:0]), True),
    "columns by an index of two dimensions": (lambda x, i: x[:, i.view(1, 3)], True),
    "rows by an index": (lambda x, i: x[i], True),
    "elements of a vector": (lambda x, i: x.view(-1)[i], True),
    "parts of rows": (lambda x, i: x.gather(0, i.view(-1, 1).expand(-1, 4)), False),
    "a row for each": (lambda x, i: x.gather(0, i[:1].view(1, 1).expand(3, 5)), False),
    "of three dimensions": (lambda x, i: x.view(2, 2, 5).gather(1, i.view(1, 3, 1).expand(2, 3, 5) % 2), False),
    "of three dimensions, as it is": (
        lambda x, i: x.view(2, 2, 5).gather(1, (i % 2).view(1, 3, 1).expand(2, 3, 5)),
        True,
    ),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PICKED)
def test_an_index_that_is_one_for_a_slice_picks_slices(name: str, dynamic: bool) -> None:
    function, whole = PICKED[name]
    x, index = torch.randn(4, 5), torch.tensor([3, 0, 3])
    backend = dort_compare.DebugBackend(fallback=False)
    found = torch.compile(function, backend=backend, dynamic=dynamic)(x, index)
    assert torch.equal(found, function(x, index))
    (graph,) = backend.graphs
    types = {node.op_type for node in graph.program.model.graph}
    if not dynamic:
        assert ("Gather" in types) is whole, types
        assert ("GatherElements" in types) is not whole, types


def test_an_index_that_is_one_for_a_slice_is_refused_below_0() -> None:
    function = torch.compile(lambda x, i: x.gather(0, i.view(-1, 1).expand(-1, 5)), backend="dort")
    with pytest.raises(RuntimeError):
        function(torch.randn(4, 5), torch.tensor([3, -1]))
