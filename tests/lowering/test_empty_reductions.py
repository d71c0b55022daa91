"""What reductions of no elements result in is written down: ONNX Runtime's CUDA provider does not compute it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import pytest
import torch
from op_calls import Call, complaints
from torch import fx

from dort_compare import DebugBackend
from dort_compare.lowering.builder import Builder
from dort_compare.provenance import Provenance
from dort_compare.runtime import newest_opset
from dort_compare.runtime.opsets import OLDEST_OPSET

aten = torch.ops.aten
EMPTY: tuple[tuple[tuple[int, ...], int], ...] = ((3, 0), 1), ((0, 3), 0), ((2, 0, 3), -2), ((0, 0), 0), ((0,), 0)
ALONG_A_DIM: dict[str, Callable[..., Call]] = {
    "sum": lambda x, dim, keepdim: Call(aten.sum.dim_IntList, (x, [dim], keepdim), {}),
    "mean": lambda x, dim, keepdim: Call(aten.mean.dim, (x, [dim], keepdim), {}),
    "prod": lambda x, dim, keepdim: Call(aten.prod.dim_int, (x, dim, keepdim), {}),
    "prod of integers": lambda x, dim, keepdim: Call(aten.prod.dim_int, (x.long(), dim, keepdim), {}),
    "var": lambda x, dim, keepdim: Call(aten.var.correction, (x, [dim]), {"keepdim": keepdim}),
    "any": lambda x, dim, keepdim: Call(aten.any.dim, (x, dim, keepdim), {}),
    "all": lambda x, dim, keepdim: Call(aten.all.dim, (x, dim, keepdim), {}),
}
ROWLESS: dict[str, Callable[..., Call]] = {
    "argmax": lambda x, keepdim: Call(aten.argmax.default, (x, -1, keepdim), {}),
    "argmin": lambda x, keepdim: Call(aten.argmin.default, (x, -1, keepdim), {}),
    "max": lambda x, keepdim: Call(aten.max.dim, (x, -1, keepdim), {}),
    "min": lambda x, keepdim: Call(aten.min.dim, (x, -1, keepdim), {}),
    "median": lambda x, keepdim: Call(aten.median.dim, (x, -1, keepdim), {}),
    "amax": lambda x, keepdim: Call(aten.amax.default, (x, [-1], keepdim), {}),
}
WHOLE = (aten.sum.default, aten.prod.default, aten.any.default, aten.all.default, aten.mean.default)
SPECIAL = (
    aten.special_hermite_polynomial_h.default,
    aten.special_laguerre_polynomial_l.default,
    aten.special_chebyshev_polynomial_t.default,
    aten.special_zeta.default,
)


def assert_right_without(op_types: str, call: Call) -> None:
    for opset in (OLDEST_OPSET, newest_opset()):
        written = [node.op_type for node in call.lowered(opset).model.graph.all_nodes()]
        assert not [op_type for op_type in written if op_type.startswith(op_types)]
        assert not complaints([call], opset, units=0)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("name", ALONG_A_DIM)
@pytest.mark.parametrize(("shape", "dim"), EMPTY, ids=str)
def test_along_a_dimension_of_size_0(name: str, shape: tuple[int, ...], dim: int, keepdim: bool) -> None:
    assert_right_without("Reduce", ALONG_A_DIM[name](torch.ones(shape), dim, keepdim))


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("name", ROWLESS)
@pytest.mark.parametrize("shape", [(0, 3), (2, 0, 4)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
def test_along_the_last_dimension_of_no_rows(
    name: str, shape: tuple[int, ...], keepdim: bool, dtype: torch.dtype
) -> None:
    call = ROWLESS[name](torch.ones(shape, dtype=dtype), keepdim)
    for opset in (OLDEST_OPSET, newest_opset()):
        assert not complaints([call], opset, units=0)


@pytest.mark.parametrize("target", WHOLE, ids=str)
@pytest.mark.parametrize("shape", [(0,), (2, 0)], ids=str)
def test_of_a_whole_tensor(target: Any, shape: tuple[int, ...]) -> None:
    assert_right_without("Reduce", Call(target, (torch.ones(shape),), {}))


@pytest.mark.parametrize("target", SPECIAL, ids=str)
@pytest.mark.parametrize("shapes", [((0, 3), (0, 3)), ((0, 3), (3,)), ((3, 1), (1, 0)), ((1,), (2, 0))], ids=str)
def test_a_loop_over_no_elements_is_none(target: Any, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    x, n = map(torch.ones, shapes)
    assert_right_without(("Reduce", "Loop"), Call(target, (x, n), {}))


def test_another_dimension_of_size_0_is_no_matter() -> None:
    call = Call(aten.sum.dim_IntList, (torch.ones(0, 3), [1]), {})
    assert [node.op_type for node in call.lowered(newest_opset()).model.graph] == ["ReduceSum"]


@pytest.mark.parametrize("keepdim", [False, True])
def test_the_sizes_that_stay_may_be_symbolic(keepdim: bool) -> None:
    backend = DebugBackend(providers=["cpu"], fallback=False)
    x = torch.ones(4, 0, 5)
    torch._dynamo.mark_dynamic(x, 0)
    function = lambda x: (x.sum(1, keepdim=keepdim), x.prod(1, keepdim=keepdim))  # noqa: E731
    found = torch.compile(function, backend=backend)(x)
    assert not [n for n in backend.graphs[0].onnx_model.graph.node if n.op_type.startswith("Reduce")]
    torch.testing.assert_close(list(found), list(function(x)))


LOWEST_AND_HIGHEST = {
    torch.float32: (-torch.inf, torch.inf),
    torch.float16: (-torch.inf, torch.inf),
    torch.int64: (-(2**63), 2**63 - 1),
    torch.uint8: (0, 255),
    torch.bool: (False, True),
}


@pytest.mark.parametrize("dtype", LOWEST_AND_HIGHEST, ids=str)
def test_extremes_of_nothing_are_those_of_the_dtype(dtype: torch.dtype) -> None:
    """As ONNX says; torch refuses most."""
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2, 0]))
    op = Builder(ir.Graph([x], [], nodes=[], opset_imports={"": 20}, name="graph"))
    node = fx.Graph().placeholder("node")
    op.enter(node, Provenance.of(node, "inference"))
    empty = op.cast(x, dtype)
    for operator, expected in zip(("ReduceMax", "ReduceMin"), LOWEST_AND_HIGHEST[dtype], strict=True):
        result = getattr(op, operator)(empty, [-1], keepdims=0)
        expand = result.producer()
        assert (expand.op_type, result.dtype, result.shape) == ("Expand", empty.dtype, ir.Shape([2]))
        assert expand.inputs[0].const_value.numpy().item() == expected
