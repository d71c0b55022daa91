"""The Chebyshev polynomials of the first to the fourth kind, on [-1, 1] and shifted to [0, 1].

As in ATen/native/Math.h: at the ends by limit, between them from some degree on by trigonometric functions, elsewhere
by recurrence. The trigonometric functions are computed in float64, for the degree multiplies the rounding of the angle.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.inverse import acos
from dort_compare.lowering.ops.orthogonal import Polynomial, alternating, orthogonal, recurrence
from dort_compare.lowering.values import dtype_of


@dataclass(frozen=True)
class _Kind:
    """``first``: a, b of P_1(y) = a y + b. ``at_one``, ``at_minus_one``: those of the limits a n + b, (-1)^n (a n + b).

    P_n(cos 2t) = wave((2 n + offset) t) / wave(offset t) is used above the degree ``waving``, or ``waving_shifted``.
    """

    first: tuple[int, int]
    at_one: tuple[int, int]
    at_minus_one: tuple[int, int]
    wave: str
    offset: int
    waving: int
    waving_shifted: int


_KINDS = {
    "t": _Kind((1, 0), (0, 1), (0, 1), "Cos", 0, 6, 6),
    "u": _Kind((2, 0), (1, 1), (1, 1), "Sin", 2, 8, 6),
    "v": _Kind((2, -1), (0, 1), (2, 1), "Cos", 1, 8, 6),
    "w": _Kind((2, 1), (2, 1), (0, 1), "Sin", 1, 8, 4),
}


def _chebyshev(kind: _Kind, shifted: bool) -> Polynomial:
    def polynomial(op: Builder, x: ir.Value, n: ir.Value) -> ir.Value:
        y = op.Sub(op.Add(x, x), 1) if shifted else x
        at_one, at_minus_one = op.Equal(x, 1), op.Equal(x, 0 if shifted else -1)
        above = op.Greater(n, kind.waving_shifted if shifted else kind.waving)
        waves = op.And(above, op.Less(op.Abs(y), 1))
        given = op.Or(waves, op.Or(at_one, at_minus_one))
        value = _recurrence(op, kind, y, op.Where(given, 0, n))
        value = op.Where(waves, op.cast(_wave(op, kind, y, n), dtype_of(x)), value)
        value = op.Where(at_one, _line(op, kind.at_one, op.cast(n, dtype_of(x))), value)
        limit = op.Mul(_line(op, kind.at_minus_one, op.cast(n, dtype_of(x))), alternating(op, n, dtype_of(x)))
        return op.Where(at_minus_one, limit, value)

    return polynomial


def _recurrence(op: Builder, kind: _Kind, y: ir.Value, n: ir.Value) -> ir.Value:
    """P_{k + 1} = 2 y P_k - P_{k - 1}"""
    twice = op.Add(y, y)
    first = _line(op, kind.first, y)
    return recurrence(op, n, first, lambda _, value, before: op.Sub(op.Mul(twice, value), before))


def _wave(op: Builder, kind: _Kind, y: ir.Value, n: ir.Value) -> ir.Value:
    half_angle = op.Mul(acos(op, op.cast(y, torch.float64)), 0.5)
    multiple = op.cast(op.Add(op.Mul(n, 2), kind.offset), torch.float64)
    wave = getattr(op, kind.wave)
    return op.Div(wave(op.Mul(half_angle, multiple)), wave(op.Mul(half_angle, float(kind.offset))))


def _line(op: Builder, line: tuple[int, int], x: ir.Value) -> ir.Value:
    """a x + b"""
    slope, offset = line
    return op.Add(op.Mul(x, float(slope)), float(offset))


for _name, _kind in _KINDS.items():
    orthogonal(f"chebyshev_polynomial_{_name}")(_chebyshev(_kind, shifted=False))
    orthogonal(f"shifted_chebyshev_polynomial_{_name}")(_chebyshev(_kind, shifted=True))
