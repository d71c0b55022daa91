"""The Bessel functions of order 0 and 1 beyond 5: waves whose amplitudes are rational functions of 25 / x^2.

Cephes' j0.c and j1.c as in ATen/native/Math.h, which leaves out the leading 1 of the denominators Q that they have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import onnx_ir as ir

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.polynomial import Ratio, rational


@dataclass(frozen=True)
class Wave:
    """How far it is behind x, and its amplitudes, the first in this phase, the other a quarter of a turn off."""

    phase: float
    along: Ratio
    across: Ratio


ORDER_0 = Wave(
    phase=math.pi / 4,
    along=(
        (
            7.96936729297347051624e-04,
            8.28352392107440799803e-02,
            1.23953371646414299388e00,
            5.44725003058768775090e00,
            8.74716500199817011941e00,
            5.30324038235394892183e00,
            9.99999999999999997821e-01,
        ),
        (
            9.24408810558863637013e-04,
            8.56288474354474431428e-02,
            1.25352743901058953537e00,
            5.47097740330417105182e00,
            8.76190883237069594232e00,
            5.30605288235394617618e00,
            1.00000000000000000218e00,
        ),
    ),
    across=(
        (
            -1.13663838898469149931e-02,
            -1.28252718670509318512e00,
            -1.95539544257735972385e01,
            -9.32060152123768231369e01,
            -1.77681167980488050595e02,
            -1.47077505154951170175e02,
            -5.14105326766599330220e01,
            -6.05014350600728481186e00,
        ),
        (
            6.43178256118178023184e01,
            8.56430025976980587198e02,
            3.88240183605401609683e03,
            7.24046774195652478189e03,
            5.93072701187316984827e03,
            2.06209331660327847417e03,
            2.42005740240291393179e02,
        ),
    ),
)
ORDER_1 = Wave(
    phase=3 * math.pi / 4,
    along=(
        (
            7.62125616208173112003e-04,
            7.31397056940917570436e-02,
            1.12719608129684925192e00,
            5.11207951146807644818e00,
            8.42404590141772420927e00,
            5.21451598682361504063e00,
            1.00000000000000000254e00,
        ),
        (
            5.71323128072548699714e-04,
            6.88455908754495404082e-02,
            1.10514232634061696926e00,
            5.07386386128601488557e00,
            8.39985554327604159757e00,
            5.20982848682361821619e00,
            9.99999999999999997461e-01,
        ),
    ),
    across=(
        (
            5.10862594750176621635e-02,
            4.98213872951233449420e00,
            7.58238284132545283818e01,
            3.66779609360150777800e02,
            7.10856304998926107277e02,
            5.97489612400613639965e02,
            2.11688757100572135698e02,
            2.52070205858023719784e01,
        ),
        (
            7.42373277035675149943e01,
            1.05644886038262816351e03,
            4.98641058337653607651e03,
            9.56231892404756170795e03,
            7.99704160447350683650e03,
            2.82619278517639096600e03,
            3.36093607810698293419e02,
        ),
    ),
)


def j_wave(op: Builder, x: ir.Value, wave: Wave) -> ir.Value:
    """J(x) = sqrt(2 / (pi x)) (P cos(x - phase) - 5 / x Q sin(x - phase))"""
    along, across, angle = _parts(op, x, wave)
    return _damped(op, x, op.Sub(op.Mul(along, op.Cos(angle)), op.Mul(across, op.Sin(angle))))


def y_wave(op: Builder, x: ir.Value, wave: Wave) -> ir.Value:
    """Y(x) = sqrt(2 / (pi x)) (P sin(x - phase) + 5 / x Q cos(x - phase))"""
    along, across, angle = _parts(op, x, wave)
    return _damped(op, x, op.Add(op.Mul(along, op.Sin(angle)), op.Mul(across, op.Cos(angle))))


def _parts(op: Builder, x: ir.Value, wave: Wave) -> tuple[ir.Value, ir.Value, ir.Value]:
    fifth = op.Div(5, x)
    square = op.Mul(fifth, fifth)
    across = op.Mul(fifth, rational(op, square, wave.across))
    return rational(op, square, wave.along), across, op.Sub(x, wave.phase)


def _damped(op: Builder, x: ir.Value, wave: ir.Value) -> ir.Value:
    return op.Div(op.Mul(wave, math.sqrt(2 / math.pi)), op.Sqrt(x))
