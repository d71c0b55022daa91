"""Integers beyond int32: for ONNX Runtime 1.31 the larger of 2**31 and 1 is 1, as it takes lower halves for signed.

Its kernels of two elements at once do; one element alone is right, so every case here has several.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from op_calls import Call
from torch import Tensor

from dort_compare.runtime import newest_opset

aten = torch.ops.aten
LIMITS = torch.iinfo(torch.int64)
EDGES = torch.tensor([0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53 + 1, LIMITS.max])
ENDS = torch.cat([EDGES, -EDGES, torch.tensor([LIMITS.min])])
X, Y = torch.cartesian_prod(ENDS, ENDS).T.contiguous()
ROWS = torch.stack([X, Y, Y, Y, Y], 1)
LOW, HIGH = torch.minimum(X.roll(1), Y), torch.maximum(X.roll(1), Y)

CALLS: dict[str, tuple[Any, ...]] = {
    "maximum": (aten.maximum.default, X, Y),
    "maximum_of_one_number": (aten.maximum.default, X, torch.tensor(2**31)),
    "minimum": (aten.minimum.default, X, Y),
    "fmax": (aten.fmax.default, X, Y),
    "fmin": (aten.fmin.default, X, Y),
    "clamp": (aten.clamp.default, X, 1, 2**32),
    "clamp_the_wrong_way_round": (aten.clamp.default, X, 2**32, 1),
    "clamp_min": (aten.clamp_min.default, X, 2**31),
    "clamp_max": (aten.clamp_max.Tensor, X, Y),
    "clamp_tensors": (aten.clamp.Tensor, X, LOW, HIGH),
    "relu": (aten.relu.default, X),
    "hardtanh": (aten.hardtanh.default, X, 0, 2**32),
    "amax_of_rows": (aten.amax.default, ROWS, [-1]),
    "amax_of_columns": (aten.amax.default, ROWS.T.contiguous(), [0], True),
    "amax_of_all": (aten.amax.default, torch.tensor([[3, 1, 2], [2**31, 5, 7]])),
    "amin_of_rows": (aten.amin.default, ROWS, [1], True),
    "amin_along_two_dimensions": (aten.amin.default, ROWS.view(17, 17, 5), [0, -1]),
    "amax_of_a_number": (aten.amax.default, torch.tensor(2**31)),
    "amax_of_nothing_along_something": (aten.amax.default, X.new_empty(0, 3), [1]),
    "aminmax": (aten.aminmax.default, torch.tensor([[3, 1, -(2**31)], [2**31, -5, 7]])),
    "max": (aten.max.default, torch.tensor([3, 2**31, 5, 7])),
    "min": (aten.min.default, torch.tensor([2**31, 2**31 + 5, 2**32 - 1, 7])),
    "max_along_one": (aten.max.dim, ROWS, 1),
    "scatter_amax": (aten.scatter_reduce.two, Y, 0, torch.arange(len(X)), X, "amax"),
}


@pytest.mark.parametrize("name", CALLS)
def test_integers_beyond_int32(name: str) -> None:
    target, *args = CALLS[name]
    expected = target(*args)
    expected = [expected] if isinstance(expected, Tensor) else list(expected)
    torch.testing.assert_close(list(Call(target, tuple(args), {}).on_onnx_runtime(newest_opset())), expected)


def test_a_step_of_quantization_beyond_int32_is_clamped() -> None:
    x = torch.tensor([[1.0, 2.0**31, 2.0**32 - 512, -(2.0**31) - 512, 3.0]])
    args = (x, torch.ones(1), torch.zeros(1, dtype=torch.int32), 0, -128, 127)
    target = aten.fake_quantize_per_channel_affine_cachemask.default
    torch.testing.assert_close(list(Call(target, args, {}).on_onnx_runtime(newest_opset())), list(target(*args)))
