"""Every lowering against torch's own kernel: dtype, shape and values of single calls."""

from __future__ import annotations

import pytest
import torch
from op_calls import complaints
from op_rows import ROWS, Row

from dort_compare.runtime import newest_opset

CASES = [pytest.param(row, dtype, id=f"{row.target}-{dtype}") for row in ROWS for dtype in row.dtypes]


@pytest.mark.parametrize(("row", "dtype"), CASES)
@pytest.mark.parametrize("opset", [18, newest_opset()])
def test_values_are_torchs(row: Row, dtype: torch.dtype, opset: int) -> None:
    calls = list(row.calls(dtype))
    assert calls, "no sample reaches the overload"
    problems = complaints(calls, opset, row.units, row.scale)
    assert not problems, f"{len(problems)} of {len(calls)} calls:\n" + "\n".join(problems)
