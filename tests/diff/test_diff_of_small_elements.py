"""Two ONNX models with a huge element: it is no measure for those beside it, where each is computed by itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from graph_text import model

from dort_compare.onnx_diff import diff

ONE = np.float32(1)
SILU = """
    agraph (float[4, 64] x) => (float[4, 64] y) {
        n = Neg(x)
        e = Exp(n)
        d = Add(e, one)
        y = Div(x, d)
    }"""
BY_SIGMOID = """
    agraph (float[4, 64] x) => (float[4, 64] y) {
        s = Sigmoid(x)
        y = Mul(x, s)
    }"""
CANCELLING = """
    agraph (float[4, 64] x) => (float[4, 64] y) {
        h = Mul(x, x)
        k = Add(h, one)
        d = Sub(k, h)
        y = Mul(d, x)
    }"""


def numbers(huge: float) -> torch.Tensor:
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(0))
    x[1, 5] = huge
    return x


def text_with(wrong: str) -> str:
    return SILU.replace("Add(e, one)", wrong)


@pytest.mark.parametrize("wrong", ["Sub(e, one)", "Mul(e, one)", "Add(e, e)"])
def test_a_fault_beside_a_huge_element_is_seen(wrong: str) -> None:
    found = diff(model(SILU, one=ONE), model(text_with(wrong), one=ONE), {"x": numbers(-75.0)})
    assert found.verdict == "diverge"
    assert found.findings.causes[0].row.pair.second == "d"


@pytest.mark.parametrize("second", [SILU, BY_SIGMOID, CANCELLING])
@pytest.mark.parametrize("huge", [-75.0, -1e4, 3e4, float("-inf")])
def test_what_a_huge_element_rounds_agrees(huge: float, second: str) -> None:
    first = CANCELLING if second == CANCELLING else SILU
    assert diff(model(first, one=ONE), model(second, one=ONE), {"x": numbers(huge)}).verdict == "agree"
