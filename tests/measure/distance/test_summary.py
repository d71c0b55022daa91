"""A fingerprint fits its cell, crashes on nothing and changes with the content."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dort_compare.measure.distance.summary import WIDTH, summarize

DTYPES = [
    torch.bool,
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.complex64, torch.complex128),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3,), (2, 4), (3, 3)])
def test_every_dtype_fits_the_cell(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    text = summarize(torch.ones(shape).to(dtype))
    assert 0 < len(text) <= WIDTH
    assert text == summarize(torch.ones(shape).to(dtype))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.tensor(1.5), "1.5"),
        (torch.tensor(0.1), "0.1"),
        (torch.tensor(-1.23456789e-300, dtype=torch.float64), "-1.2346e-300"),
        (torch.tensor(7), "7"),
        (torch.tensor(-(2**63)), "-9.2234e+18"),
        (torch.tensor(True), "True"),
        (torch.tensor(math.nan), "nan"),
        (torch.tensor(-math.inf), "-inf"),
        (torch.empty(2, 0), "empty"),
        (torch.tensor([0.0, 1.0, 2.0, 27.0]), "ABCB"),
        (torch.tensor([0, 0, 1, 0, 1, 1, 2, 1]), "ABCD"),
        (torch.tensor([True, False]), "BAAA"),
        (torch.tensor([math.nan, math.inf, -math.inf, 1.0]), "???B"),
    ],
)
def test_known_cells(value: torch.Tensor, text: str) -> None:
    assert summarize(value) == text


def test_same_content_same_cell_whatever_dtype_or_layout() -> None:
    values = torch.arange(12.0).reshape(3, 4)
    cell = summarize(values)
    assert summarize(values.bfloat16()) == summarize(values.double()) == summarize(values.int()) == cell
    assert summarize(values.t().contiguous().t().requires_grad_()) == cell
    assert summarize(values + torch.eye(3, 4)) != cell


def test_conjugate_views() -> None:
    values = torch.tensor([1 + 2j, 3 + 4j])
    assert summarize(values.conj()) == summarize(values.conj().resolve_conj()) == "BYDW"
    assert summarize(values.conj().imag) == "YWAA"


@given(st.lists(st.floats(), max_size=20))
def test_any_floats_without_a_warning(values: list[float]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(summarize(torch.tensor(values, dtype=torch.float64))) <= WIDTH
