"""What `dort` leaves to torch's kernels on the CPU, both ways: as it is left, and whole in ONNX Runtime.

    python benchmarks/left_to_torch.py --threads 1 --write benchmarks/results/left-to-torch.md

Each function stands between two products, so that leaving it costs two borders, and is compiled twice: as it is by
default, and with `fallback=False`, which leaves nothing to torch. Eager and the two take turns on the CPU, after the
results of both have been held against those of float64. The first line of a function is of as many elements as it is
left to torch from, the second of 16 times as many; those of the factorizations are square matrices, attention has 8
heads of width 64 and twice as many queries in the second line. Functions of indices read or write rows of 16 elements.
The gradient of a large embedding is of a 16th, an eighth and a quarter as many rows as its table has; only the last
is left: in the others *left* is ONNX Runtime, too.
A ratio is the median of the ratios within a round: above 1, leaving it takes less time.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from pages import flags, page, show
from torch import Tensor
from torch.nn import functional as F
from turns import milliseconds, ratio, timed

from dort_compare.backends import slow_in_onnx

aten = torch.ops.aten
ROUNDS, ROUND_SECONDS, WIDTH = 9, 0.02, 16
COLUMNS = ("function", "elements", "eager, ms", "left, ms", "whole, ms", "whole / left")
Function = Callable[[Tensor], Tensor]


def places(x: Tensor) -> Tensor:
    """An index for each row of ``x``, each of a quarter as many about four times."""
    return torch.randint(len(x) // 4, (len(x),), generator=torch.Generator().manual_seed(1))


def table(x: Tensor) -> Tensor:
    """Zeros for those indices."""
    return x.new_zeros(len(x) // 4, WIDTH)


def healthy(x: Tensor) -> Tensor:
    """A matrix like ``x`` whose condition is small."""
    return x / len(x) ** 0.5 + 3 * torch.eye(len(x), dtype=x.dtype)


def scattered(function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[[Tensor], Function]:
    """Of a table, an index for each row, and rows."""

    def of(like: Tensor) -> Function:
        index = places(like)
        return lambda x: function(table(x), index, x)

    return of


def of_a_large_table(x: Tensor) -> Function:
    """The gradient of an embedding whose memory torch has mapped anew in every call, for an index for each row."""
    rows = large_table() // WIDTH
    index = torch.randint(rows, (len(x),), generator=torch.Generator().manual_seed(1))
    return lambda x: aten.embedding_dense_backward(x, index, rows, -1, False)


def large_table() -> int:
    """How many elements it has."""
    return slow_in_onnx.MAPPED // torch.float32.itemsize


FACTORIZATIONS: Mapping[str, Function] = {
    "inv": lambda x: torch.linalg.inv(healthy(x)),
    "solve": lambda x: torch.linalg.solve(healthy(x), x),
    "slogdet": lambda x: torch.linalg.slogdet(healthy(x)).logabsdet,
    "cholesky": lambda x: torch.linalg.cholesky(healthy(x) @ healthy(x).mT),
    "qr": lambda x: torch.linalg.qr(healthy(x)).R.abs(),
    "solve_triangular": lambda x: torch.linalg.solve_triangular(healthy(x).tril(), x, upper=False),
}
SPECIAL: Mapping[str, Function] = {
    "erfc": torch.erfc,
    "erfinv": lambda x: torch.erfinv(x / 8),
    "lgamma": lambda x: torch.lgamma(x * x + 2.5),
    "digamma": lambda x: torch.digamma(x * x + 2),
    "polygamma": lambda x: torch.polygamma(1, x * x + 1),
    "gammainc": lambda x: torch.special.gammainc(x * x + 1, x * x + 0.5),
    "i0": torch.i0,
    "i1e": torch.special.i1e,
    "ndtri": lambda x: torch.special.ndtri(torch.sigmoid(x)),
    "log_ndtr": torch.special.log_ndtr,
    "bessel_j0": torch.special.bessel_j0,
    "zeta": lambda x: torch.special.zeta(x * x + 2, x * x + 1),
}
ELEMENT_BY_ELEMENT: Mapping[str, Callable[[Tensor], Function]] = {
    "gradient of embedding": scattered(lambda t, i, x: aten.embedding_dense_backward(x, i, len(t), -1, False)),
    "index_add": scattered(lambda t, i, x: t.index_add(0, i, x)),
    "index_put, accumulate": scattered(lambda t, i, x: t.index_put((i,), x, accumulate=True)),
    "scatter_add": scattered(lambda t, i, x: t.scatter_add(0, i[:, None].expand_as(x), x)),
    "scatter_reduce, amax": scattered(lambda t, i, x: t.scatter_reduce(0, i[:, None].expand_as(x), x, "amax")),
    "embedding_bag": scattered(lambda _, i, x: F.embedding_bag(i.view(-1, 8), x)),
    "log2": lambda _: lambda x: (x * x + 1).log2(),
    "exp2": lambda _: torch.exp2,
    "tan": lambda _: lambda x: (x / 8).tan(),
    "sinh": lambda _: torch.sinh,
    "fmod": lambda _: lambda x: x.fmod(64),
    "remainder": lambda _: lambda x: x.abs().remainder(64),
    "sum, of int64": lambda _: lambda x: (x > 0).long().sum(1).to(x.dtype),
    "logcumsumexp": lambda _: lambda x: x.logcumsumexp(1),
    "median": lambda _: lambda x: x.median(1).values,
    "gradient of replication_pad2d": lambda _: replicated,
    "cumprod": lambda _: lambda x: (1 + x / 16).cumprod(1),
    "cummax": lambda _: lambda x: x.cummax(1).values,
    "mode": lambda _: lambda x: x.round().mode(1).values,
    "searchsorted": lambda like: partial(searched, torch.linspace(-4, 4, 99).to(like.dtype)),
    "max_pool2d, and its gradient": lambda _: pooled,
    "adaptive_max_pool2d": lambda _: lambda x: F.adaptive_max_pool2d(x.view(1, -1, 32, 32), 7),
    "pdist": lambda _: lambda x: F.pdist(x[: math.isqrt(2 * x.numel()) + 1]),
}

ATTENTION: Mapping[str, Function] = {
    "attention, causal": lambda x: F.scaled_dot_product_attention(*heads(x), is_causal=True),
    "gradient of attention": lambda x: attended(x, is_causal=False),
    "gradient of attention, causal": lambda x: attended(x, is_causal=True),
}


def heads(x: Tensor) -> list[Tensor]:
    """Queries, keys and values of (1, 8, L, 64)."""
    return [x.view(1, 8, -1, 64)] * 3


def attended(x: Tensor, *, is_causal: bool) -> Tensor:
    """The sum of the gradients of attention to its operands, of what it returns as the gradient of its result."""
    operands = heads(x)
    kernel = aten._scaled_dot_product_flash_attention_for_cpu
    output, logsumexp = kernel(*operands, is_causal=is_causal)
    gradient = aten._scaled_dot_product_flash_attention_for_cpu_backward
    return torch.stack(gradient(output, *operands, output, logsumexp, 0.0, is_causal)).sum(0)


def searched(borders: Tensor, x: Tensor) -> Tensor:
    """The places of elements among ``borders``, as numbers."""
    return torch.searchsorted(borders, x).to(x.dtype)


def pooled(x: Tensor) -> Tensor:
    """Largest elements of windows of images of 32 x 32, given back to where they stood."""
    images, window = x.view(1, -1, 32, 32), ([3, 3], [2, 2], [1, 1])
    largest, places = aten.max_pool2d_with_indices(images, *window)
    return aten.max_pool2d_with_indices_backward(largest, images, *window, [1, 1], False, places)


def replicated(x: Tensor) -> Tensor:
    """The gradient of images of 26 x 26 that were padded to 32 x 32."""
    incoming = x.view(1, -1, 32, 32)
    return aten.replication_pad2d_backward(incoming, incoming[..., 3:-3, 3:-3], (3, 3, 3, 3))


def functions() -> Iterator[tuple[str, Function, Tensor]]:
    """Each with its name and operand, at both sizes."""
    torch.manual_seed(0)
    for name, function in FACTORIZATIONS.items():
        for n in sizes(aten.linalg_inv_ex):
            yield name, function, torch.randn(math.isqrt(n), math.isqrt(n))
    for name, function in SPECIAL.items():
        for n in sizes(aten.erfc):
            yield name, function, torch.randn(n // WIDTH, WIDTH)
    for name, function in ATTENTION.items():
        least = 8 * slow_in_onnx.LONG * 64
        for n in (least, 2 * least):
            yield name, function, torch.randn(n // WIDTH, WIDTH)
    for name, of in ELEMENT_BY_ELEMENT.items():
        for n in sizes(aten.index_add):
            x = torch.randn(n // WIDTH, WIDTH)
            yield name, of(x), x
    for part in (16, 8, 4):
        x = torch.randn(large_table() // part // WIDTH, WIDTH)
        yield "gradient of embedding, large", of_a_large_table(x), x


def sizes(function: Any) -> tuple[int, int]:
    """From how many elements on it is left to torch, and 16 times as many."""
    least = slow_in_onnx.SIZES[function]
    return least, 16 * least


def between_products(function: Function, x: Tensor) -> Tensor:
    """The function, with a product before and one behind it."""
    return function(x * 1.25) * 0.75


@torch.no_grad()
def line(name: str, function: Function, x: Tensor) -> list[str]:
    """The times of one function of one operand."""
    torch._dynamo.reset()
    eager = partial(between_products, function)
    left = torch.compile(eager, backend="dort", dynamic=False)
    whole = torch.compile(eager, backend="dort", dynamic=False, options={"fallback": False})
    exact = eager(x.double()).double()
    for way in (left, whole):
        torch.testing.assert_close(way(x).double(), exact, rtol=1e-3, atol=1e-4 * float(exact.abs().max()))
    ways = {"eager": eager, "left": left, "whole": whole}
    times = timed({each: partial(way, x) for each, way in ways.items()}, ROUNDS, ROUND_SECONDS)
    shown = (milliseconds(times[each]) for each in ways)
    return [name, str(x.numel()), *shown, f"{ratio(times, 'whole', 'left'):.2f}"]


def main() -> None:
    """Measures every function."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, parents=[flags()]
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    title = f"What is left to torch on the CPU, {options.threads} threads"
    rows = (line(*each) for each in functions())
    show(page(title, __doc__ or "", ("torch", "onnxruntime-gpu"), COLUMNS, rows), options.write)


if __name__ == "__main__":
    main()
