"""Every lowering on the CUDA provider against torch's own kernels: the rows of ``tests/lowering/test_ops.py``.

Their tensors are on the CPU; what is lowered otherwise for CUDA devices is lowered so here, too.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from op_calls import Call, complaints
from op_rows import ROWS, Row
from test_sorting_on_cuda import DTYPES as SORTED
from test_sorting_on_cuda import sorts

from dort_compare.runtime import SessionSettings, newest_opset

pytestmark = pytest.mark.usefixtures("lowered_for_cuda")

if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

CUDA = SessionSettings(("cuda", "cpu"))
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.bool)
NOT_THE_CPUS = {
    "aten._to_copy.default": "of what an integer cannot hold, CUDA makes another number than the CPU",
    "aten._cdist_forward.default": "CUDA's kernels take NaN otherwise than the CPU's",
    "aten._pdist_forward.default": "CUDA's kernels take NaN otherwise than the CPU's",
    "aten.index_put.default": "of two writes to one place, either may win on CUDA",
}
QUANTIZED = (
    "aten.fake_quantize_per_channel_affine_cachemask.default",
    "aten._fake_quantize_learnable_per_channel_affine.default",
)
"""These cast to integers, and of what one cannot hold CUDA makes another number than the CPU: they are given none."""
CASES = [
    pytest.param(row, dtype, id=f"{row.target}-{dtype}") for row in ROWS for dtype in row.dtypes if dtype in DTYPES
]


@pytest.mark.parametrize(("row", "dtype"), CASES)
def test_values_are_torchs(row: Row, dtype: torch.dtype) -> None:
    if reason := NOT_THE_CPUS.get(str(row.target)):
        pytest.skip(reason)
    calls = list(row.calls(dtype))
    assert calls, "no sample reaches the overload"
    calls = [call for call in calls if call.is_traced_as_computed()]
    if not calls:
        pytest.skip(f"torch {torch.__version__} traces other dtypes than its kernel returns")
    if str(row.target) in QUANTIZED:
        calls = [within_integers(call) for call in calls]
    problems = complaints(calls[::3], newest_opset(), row.units, row.scale, CUDA)
    assert not problems, f"{len(problems)} of {len(calls)} calls:\n" + "\n".join(problems)


def within_integers(call: Call) -> Call:
    x, *others = call.args
    return replace(call, args=(x.nan_to_num(0).clamp(-1e3, 1e3), *others))


@pytest.mark.parametrize("dtype", SORTED, ids=str)
def test_sorts_of_long_rows_are_stable_with_nan_as_the_largest(dtype: torch.dtype) -> None:
    assert not complaints(sorts(dtype), newest_opset(), units=0, settings=CUDA)
