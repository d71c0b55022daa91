"""Every lowering on the CUDA provider against torch's own kernels: the rows of ``tests/lowering/test_ops.py``.

Their tensors are on the CPU; what is lowered otherwise for CUDA devices is lowered so here, too.
"""

from __future__ import annotations

import pytest
import torch
from op_calls import complaints
from op_rows import ROWS, Row
from test_sorting_on_cuda import DTYPES as SORTED
from test_sorting_on_cuda import sorts

from dort_compare.lowering.builder import Builder
from dort_compare.runtime import SessionSettings, newest_opset

if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

CUDA = SessionSettings(("cuda", "cpu"))
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.bool)
NOT_THE_CPUS = {
    "aten._to_copy.default": "of what an integer cannot hold, CUDA makes another number than the CPU",
    "aten.index_put.default": "of two writes to one place, either may win on CUDA",
}
CASES = [
    pytest.param(row, dtype, id=f"{row.target}-{dtype}") for row in ROWS for dtype in row.dtypes if dtype in DTYPES
]


@pytest.fixture(autouse=True)
def on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Builder, "on_cuda", True)


@pytest.mark.parametrize(("row", "dtype"), CASES)
def test_values_are_torchs(row: Row, dtype: torch.dtype) -> None:
    if reason := NOT_THE_CPUS.get(str(row.target)):
        pytest.skip(reason)
    calls = list(row.calls(dtype))
    assert calls, "no sample reaches the overload"
    problems = complaints(calls[::3], newest_opset(), row.units, row.scale, CUDA)
    assert not problems, f"{len(problems)} of {len(calls)} calls:\n" + "\n".join(problems)


@pytest.mark.parametrize("dtype", SORTED, ids=str)
def test_sorts_of_long_rows_are_stable_with_nan_as_the_largest(dtype: torch.dtype) -> None:
    assert not complaints(sorts(dtype), newest_opset(), units=0, settings=CUDA)
