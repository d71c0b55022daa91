"""A view of an input that the graph writes lies where eager's does, whatever part of a tensor the input is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from every_pair import every_pair
from torch import Tensor


def zeroed(x: Tensor) -> Tensor:
    x[:, 0] = 0.0
    return x


def with_a_view(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y = zeroed(x).view(x.shape[0] * x.shape[1])
    return y[1:], x * 2, y.sum()


def by_a_view(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.flatten()
    y[0] = 3.0
    return y, x


VIEWS: dict[str, Callable[[Tensor], Any]] = {
    "view": lambda x: zeroed(x).view(x.shape[0] * x.shape[1]),
    "view of a sum": lambda x: x.add_(1.0).view(x.shape[0] * x.shape[1]),
    "itself and a view": lambda x: (zeroed(x), x.unflatten(0, (x.shape[0], 1))),
    "view of a copy": lambda x: x.copy_(x.flip(0)).view(x.shape[0], 1, x.shape[1]),
    "narrow": lambda x: zeroed(x).narrow(0, x.shape[0] - 2, 2),
    "expand": lambda x: zeroed(x).expand(2, *x.shape),
    "masked": lambda x: x.masked_fill_(x > 0, 0.0).flatten(),
    "view of a view": with_a_view,
    "two": lambda x: (zeroed(x).view(-1), x.unsqueeze(1)),
    "written by a view": lambda x: by_a_view(x)[0],
    "written by a view, and itself": lambda x: by_a_view(x),
    "written by a view of a view": lambda x: by_a_view(x.unsqueeze(0)),
    "transposed": lambda x: zeroed(x).t().narrow(1, x.shape[0] - 2, 2),
}
PARTS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "rows": lambda data, n: data[n : 2 * n],
    "all": lambda data, n: data[:n].clone(),
}


def runs(function: Callable[..., Any], part: str, gradients: bool) -> Iterator[tuple[Tensor, Any]]:
    """The data, and what the function returns of a part of it, for batches of three sizes."""
    for n in (4, 6, 5):
        data = torch.arange(60.0).view(12, 5).requires_grad_(gradients) * 1
        result = function(PARTS[part](data, n))
        yield data, result if isinstance(result, tuple) else (result,)


@every_pair(name=VIEWS, part=PARTS, compiler=("dort", "dort_debug"), gradients=(False, True))
def test_a_view_of_what_is_written_lies_where_eagers_does(name: str, part: str, compiler: str, gradients: bool) -> None:
    function = VIEWS[name]
    compiled = torch.compile(function, backend=compiler)
    both = zip(runs(function, part, gradients), runs(compiled, part, gradients), strict=True)
    for (expected_data, expected), (data, found) in both:
        assert torch.equal(data, expected_data)
        for right, result in zip(expected, found, strict=True):
            assert torch.equal(result, right)
            assert (result.stride(), result.storage_offset()) == (right.stride(), right.storage_offset())
        shares = [result.untyped_storage().data_ptr() == data.untyped_storage().data_ptr() for result in found]
        assert shares == [
            one.untyped_storage().data_ptr() == expected_data.untyped_storage().data_ptr() for one in expected
        ]


def test_columns_too() -> None:
    def function(x: Tensor) -> Tensor:
        return zeroed(x).narrow(0, x.shape[0] - 2, 2)

    compiled = torch.compile(function, backend="dort")
    for n in (3, 4, 5):
        data, other = (torch.arange(60.0).view(12, 5) for _ in range(2))
        right, found = function(data[:, 1:n]), compiled(other[:, 1:n])
        assert torch.equal(found, right)
        assert torch.equal(data, other)
        assert (found.stride(), found.storage_offset()) == (right.stride(), right.storage_offset())


def test_two_results_of_a_copying_reshape_share_memory() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.transpose(1, 2).reshape(2, 3, 8)
        part = y[..., :4]
        part.mul_(2)
        return y, part

    for compiler in ("dort", "dort_debug"):
        torch._dynamo.reset()
        whole, part = torch.compile(function, backend=compiler)(torch.ones(2, 2, 3, 4))
        assert whole[0, 0].tolist() == [2.0] * 4 + [1.0] * 4
        part.zero_()
        assert whole[0, 0].tolist() == [0.0] * 4 + [1.0] * 4
