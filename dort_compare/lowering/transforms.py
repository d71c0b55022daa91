"""Discrete Fourier transforms of rows, in which a complex number is two columns: its real and its imaginary part.

    y[k] = sum over j of x[j] exp(sign 2 pi i j k / n)

They are products with matrices: one, or several for a length that is a product (J. W. Cooley, J. W. Tukey, 1965).
ONNX Runtime's own DFT (1.31) is slower, errs by as many roundoffs as there are elements where their number is no power
of two, and scales float64 in float32 (`benchmarks/transforms.py`); its CUDA provider has none.
"""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.values import dtype_of

DENSE = 64
"""Up to this length one matrix does; beyond, smaller ones cost less."""
LARGEST = 2**22
"""How many elements the matrices of one step may have."""


def of_reals(op: Builder, rows: ir.Value, n: int, kept: int) -> ir.Value:
    """[B, n] -> [B, 2 kept]: the first elements, with sign -1."""
    if _factor(op, n) is None:
        cos, sin = _turns(n, kept, -1)
        return op.MatMul(rows, _held(op, torch.stack([cos, sin], -1).reshape(n, 2 * kept), rows))
    column = op.Unsqueeze(rows, [2])
    pairs = op.Reshape(op.Concat(column, op.Sub(column, column), axis=2), [-1, 2 * n])
    found = op.Slice(of_complex(op, pairs, n, -1), [0], [2 * kept], [1])
    if n % 2 or kept <= n // 2 or _has_real_middle(op, n):
        return found
    is_noise = torch.arange(2 * kept) == n + 1
    return op.Where(op.const(is_noise, torch.bool), op.const(0, dtype_of(rows)), found)


def of_complex(op: Builder, rows: ir.Value, n: int, sign: int) -> ir.Value:
    """[B, 2 n] -> [B, 2 n]."""
    a = _factor(op, n)
    if a is None:
        return op.MatMul(rows, _held(op, _in_parts(*_turns(n, n, sign)).reshape(2 * n, 2 * n), rows))
    b = n // a
    columns = op.Reshape(op.Transpose(op.Reshape(rows, [-1, a, b, 2]), perm=[2, 0, 1, 3]), [b, -1, 2 * a])
    turned = op.MatMul(columns, _held(op, _with_twiddles(a, b, sign), rows))
    within = op.Reshape(op.Transpose(op.Reshape(turned, [b, -1, a, 2]), perm=[1, 2, 0, 3]), [-1, 2 * b])
    found = op.Reshape(of_complex(op, within, b, sign), [-1, a, b, 2])
    return op.Reshape(op.Transpose(found, perm=[0, 2, 1, 3]), [-1, 2 * n])


def to_reals(op: Builder, rows: ir.Value, n: int) -> ir.Value:
    """[B, 2 (n // 2 + 1)] -> [B, n]: of the first elements of a row that is symmetric, with sign 1."""
    kept = n // 2 + 1
    if _factor(op, n) is None:
        cos, sin = (values.mT for values in _turns(n, kept, 1))
        twice = torch.full((kept, 1), 2.0, dtype=torch.float64)
        twice[[0, n // 2] if n % 2 == 0 else [0]] = 1
        return op.MatMul(rows, _held(op, torch.stack([twice * cos, -twice * sin], 1).reshape(2 * kept, n), rows))
    half = op.Reshape(rows, [-1, kept, 2])
    mirrored = op.Mul(op.Slice(half, [n - kept], [0], [1], [-1]), op.const([1.0, -1.0], dtype_of(rows)))
    whole = of_complex(op, op.Reshape(op.Concat(half, mirrored, axis=1), [-1, 2 * n]), n, 1)
    return op.Squeeze(op.Slice(op.Reshape(whole, [-1, n, 2]), [0], [1], [2]), [2])


def _factor(op: Builder, n: int) -> int | None:
    """The divisor of ``n`` by which a step goes; None where one matrix does. Raises where neither is within limits."""
    if n <= DENSE:
        return None
    smaller = (*range(DENSE, 1, -1), *range(DENSE + 1, math.isqrt(n) + 1))
    found = [a for a in smaller if n % a == 0 and 4 * n * a <= LARGEST]
    even_left = (a for a in (*found, *(n // a for a in found)) if n // a % 2 == 0 and 4 * n * a <= LARGEST)
    a = next(even_left, found[0] if found else None)
    if a is None and 4 * n * n > LARGEST:
        raise op.unsupported(f"a transform of length {n}, which has too large a prime factor")
    return a


def _has_real_middle(op: Builder, n: int) -> bool:
    """Whether the middle result of reals is exactly real by itself: an even rest keeps it so."""
    a = _factor(op, n)
    return a is None or (n // a % 2 == 0 and _has_real_middle(op, n // a))


# Matrices, in float64: the smaller the multiple of a turn, the more exact its sine.


def _turns(n: int, kept: int, sign: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine of sign 2 pi j k / n, [n, kept] each."""
    steps = torch.outer(torch.arange(n), torch.arange(kept))
    return _of_turns(steps, n, sign)


def _of_turns(steps: torch.Tensor, n: int, sign: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Those of sign 2 pi steps / n, at quarters of a turn 0, 1 and -1."""
    steps = steps % n
    angles, are_quarters = steps.double() * (sign * 2 * math.pi / n), 4 * steps % n == 0
    cos, sin = (torch.where(are_quarters, values.round() + 0.0, values) for values in (angles.cos(), angles.sin()))
    return cos, sin


def _in_parts(cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """[..., n, m] each -> [..., n, 2, m, 2], which multiplies real and imaginary parts by cos + i sin."""
    return torch.stack([torch.stack([cos, sin], -1), torch.stack([-sin, cos], -1)], -3)


def _with_twiddles(a: int, b: int, sign: int) -> torch.Tensor:
    """[b, 2 a, 2 a]: for each column of rows [a, b] its transform, each result turned by as many steps as the column
    stands from the first."""
    steps = torch.arange(a).unsqueeze(1) * b + torch.arange(b).view(b, 1, 1)
    cos, sin = _of_turns(steps * torch.arange(a), a * b, sign)
    return _in_parts(cos, sin).reshape(b, 2 * a, 2 * a)


def _held(op: Builder, matrix: torch.Tensor, like: ir.Value) -> ir.Value:
    return op.const(matrix, dtype_of(like))
