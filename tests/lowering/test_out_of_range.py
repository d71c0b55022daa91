"""What torch refuses for its size is refused: ONNX counts negative indices from the end."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from dort_compare.errors import OutOfRangeError

PLACES = torch.tensor([[[0, 1, 2]] * 3 + [[0, 1, -2]]])
CALLS: dict[str, tuple[Callable[..., Tensor], Tensor]] = {
    "repeat_interleave": (lambda x, n: x.repeat_interleave(n, 0, output_size=4), torch.tensor([1, -1, 2, 2])),
    "embedding": (lambda x, i: F.embedding(i, x), torch.tensor([0, -1])),
    "embedding of int32": (lambda x, i: F.embedding(i, x), torch.tensor([0, -1], dtype=torch.int32)),
    "scatter": (lambda x, i: x.scatter(0, i, 1.0), torch.tensor([[0], [-1]])),
    "max_unpool1d": (lambda x, i: F.max_unpool1d(x[None], i, 2), PLACES),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_negative_number_is_out_of_range(name: str) -> None:
    function, numbers = CALLS[name]
    x = torch.arange(12.0).view(4, 3)
    compiled = torch.compile(function, backend="dort")
    with pytest.raises((RuntimeError, IndexError)):
        function(x, numbers)
    with pytest.raises(OutOfRangeError, match=r"an index or a count is negative, or far out of bounds$"):
        compiled(x, numbers)


@pytest.mark.parametrize("size", [2, 5])
def test_repeats_that_do_not_come_to_the_size_that_is_given(size: int) -> None:
    """Those that follow would compute with as many rows as there are."""
    x, counts = torch.arange(6.0).view(2, 3), torch.tensor([2, 1])
    function = lambda x, n: x.repeat_interleave(n, 0, output_size=size).mean(0)  # noqa: E731
    for call in (function, torch.compile(function, backend="dort", options={"fallback": False})):
        with pytest.raises(RuntimeError):
            call(x, counts)


def test_a_bin_of_a_histogram_whose_range_overflows_is_the_first() -> None:
    x = torch.tensor([1e38, -1e38, 0.0, 1.0])
    compiled = torch.compile(lambda x: x.histc(3), backend="dort")
    torch.testing.assert_close(compiled(x), x.histc(3))
    assert compiled(3 * x).sum() == 4
