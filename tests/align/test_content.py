"""What a sketch tells of a tensor's content."""

from __future__ import annotations

import pytest
import torch

from dort_compare.align.content import sketch


@pytest.mark.parametrize("others", [[], [torch.inf], [torch.finfo(torch.float32).min]])
def test_the_sign_of_zero_makes_no_other_content(others: list[float]) -> None:
    one, other = (sketch(torch.tensor([zero, 1.0, *others])) for zero in (0.0, -0.0))
    assert one.exact == other.exact


@pytest.mark.parametrize("special", [torch.nan, torch.inf, 0.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_number_is_the_same_in_every_dtype_that_holds_it(dtype: torch.dtype, special: float) -> None:
    values = torch.randn(70_000).to(dtype)
    values[7] = special
    assert sketch(values).exact == sketch(values.double()).exact
    assert sketch(values.double()).exact != sketch(values.double() * (1 + 1e-15)).exact


def test_blocks_that_change_places_are_other_content() -> None:
    blocks = torch.randn(3, 2**16)
    one, other = sketch(blocks), sketch(blocks[[1, 0, 2]])
    assert one.scale == pytest.approx(other.scale, rel=0.1)
    assert max(abs(a - b) for a, b in zip(one.projections, other.projections, strict=True)) > 0.1


def test_integers_of_every_other_place_have_a_sketch() -> None:
    assert sketch(torch.arange(100)[::2]).exact == sketch(torch.arange(0, 100, 2).int()).exact


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_not_a_number_has_one_content_that_no_infinity_is_near(dtype: torch.dtype) -> None:
    nan, positive, negative = (sketch(torch.tensor(value).to(dtype)) for value in (torch.nan, torch.inf, -torch.inf))
    assert nan.exact == sketch(torch.tensor([torch.nan])).exact
    assert all(one.distance(other) == torch.inf for one, other in ((nan, positive), (positive, negative)))
