"""What is lowered otherwise for CUDA devices, run on the CPU: for lack of a kernel of ONNX Runtime's, or of its digits.

A node without a kernel there is computed on the host, which the device waits for.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir
import pytest
import torch
from op_calls import Call, complaints
from op_rows import ROWS, Row, cases
from torch import Tensor

from dort_compare import DebugBackend
from dort_compare.runtime import newest_opset

pytestmark = pytest.mark.usefixtures("lowered_for_cuda")

aten = torch.ops.aten
INDEXED = (
    "embedding",
    "gather",
    "index_select",
    "index_add",
    "index_copy",
    "index_reduce",
    "scatter",
    "scatter_add",
    "scatter_reduce",
    "max_unpool2d",
    "_embedding_bag",
)
PADDED = ("constant_pad_nd", "slice_backward", "select_backward", "im2col")
COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")
TRUTH = ("any", "all", "amax", "amin", "aminmax", "max", "min", "argmax", "argmin")
OTHERS = ("_softmax", "_log_softmax", "tril", "triu", "lu_unpack")
NAMES = (*INDEXED, *PADDED, *COMPARED, *TRUTH, *OTHERS)
CASES = cases(row for row in ROWS if str(row.target).split(".")[1] in NAMES and row.target.namespace == "aten")


@pytest.mark.parametrize("share", [0.25, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("row", "dtype"), CASES)
def test_values_are_torchs(row: Row, dtype: torch.dtype, share: float) -> None:
    assert not complaints(row.drawn(dtype, share), newest_opset(), row.units, row.scale)


def written(call: Call) -> Iterator[tuple[str, ir.DataType | None]]:
    """The operators of a call's model, each with the dtype of its data."""
    for node in call.lowered(newest_opset()).model.graph:
        data = node.inputs[node.op_type == "Where"]
        yield node.op_type, data and data.dtype


X, PLACES = torch.randn(3, 4), torch.tensor([[0, 2], [1, 1]])
WITHOUT = {
    "an embedding": ("BitwiseAnd", None, Call(aten.embedding.default, (X, PLACES), {})),
    "a gather by int32": ("BitwiseAnd", None, Call(aten.index_select.default, (X, 0, PLACES[0].int()), {})),
    "whether any is true": ("ReduceMax", None, Call(aten.any.dim, (X > 0, 1), {})),
    "an extreme that may be NaN": ("ReduceMax", "UINT8", Call(aten.amax.default, (X, [1]), {})),
    "its place": ("ReduceMax", "UINT8", Call(aten.argmax.default, (X, 1), {})),
    "a comparison in bfloat16": ("Greater", "BFLOAT16", Call(aten.gt.Scalar, (X.bfloat16(), 0.1), {})),
    "one of truth values": ("Equal", "UINT8", Call(aten.eq.Tensor, (X > 0, X > 1), {})),
    "a border in bfloat16": ("Pad", "BFLOAT16", Call(aten.constant_pad_nd.default, (X.bfloat16(), [1, 2]), {})),
    "one of labels": ("Pad", None, Call(aten.constant_pad_nd.default, (PLACES, [0, 1], -100), {})),
    "the gradient of a slice": (
        "Pad",
        "BFLOAT16",
        Call(aten.slice_backward.default, (X.bfloat16(), [3, 9], 1, 2, 6, 1), {}),
    ),
    "a softmax in float64": ("Softmax", None, Call(aten._softmax.default, (X.double(), 1, False), {})),
    "its logarithm": ("LogSoftmax", None, Call(aten._log_softmax.default, (X.double(), 1, False), {})),
    "triangles of no matrices": ("Trilu", None, Call(aten.triu.default, (X[:0],), {})),
    "factors of no matrices": (
        "Trilu",
        None,
        Call(aten.lu_unpack.default, (torch.zeros(0, 3, 3), torch.zeros(0, 3, dtype=torch.int32)), {}),
    ),
}


@pytest.mark.parametrize("name", WITHOUT)
def test_nothing_without_a_kernel_is_written(name: str) -> None:
    operator, dtype, call = WITHOUT[name]
    found = [data for op_type, data in written(call) if op_type == operator]
    assert not [data for data in found if dtype is None or data == ir.DataType[dtype]]
    assert not complaints([call], newest_opset(), units=8)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bfloat16, torch.uint8], ids=str)
def test_borders_that_cut_or_are_symbolic(dtype: torch.dtype) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.nn.functional.pad(x, (x.shape[0], -1, 0, 2), value=3)

    compiled = torch.compile(function, backend=DebugBackend(providers=["cpu"], fallback=False), dynamic=True)
    for length in (3, 5):
        x = torch.arange(length * 4).reshape(length, 4).to(dtype)
        torch.testing.assert_close(compiled(x), function(x))
