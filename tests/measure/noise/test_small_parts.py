"""What is huge in one row is no measure for the others."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dort_compare.measure.distance import blocks
from dort_compare.measure.noise import small_parts
from dort_compare.measure.noise.floor import rounding

ALLOWED = rounding(torch.float32)
ANY = torch.tensor(torch.inf)
"""The numbers that an element is computed of may be as large as the largest of all."""


def rows(*sizes: float, width: int = 8) -> torch.Tensor:
    """A row of each size."""
    signs = torch.randn(len(sizes), width, generator=torch.Generator().manual_seed(0)).sign()
    return torch.tensor(sizes)[:, None] * signs


def parts(expected: torch.Tensor, value: torch.Tensor) -> list[torch.Tensor]:
    """The masks of every part, narrow ones too."""
    sides = expected, value, ALLOWED
    return [*small_parts.small_parts(*sides), *small_parts.narrow_parts(*sides)]


def masks(expected: torch.Tensor, value: torch.Tensor) -> list[list[int]]:
    """The rows of every mask."""
    found = [mask.reshape(len(expected), -1) for mask in parts(expected, value)]
    assert all(torch.equal(mask.any(-1), mask.all(-1)) for mask in found)
    return sorted(mask.any(-1).nonzero().flatten().tolist() for mask in found)


@pytest.mark.parametrize("width", [2, 3, 8])
def test_rows_far_smaller_are_looked_at_by_size_where_they_differ(width):
    right = rows(1e6, 1.0, 1.0, 2.0, 1e-3, width=width)
    wrong = right.clone()
    wrong[[1, 3, 4]] *= 1.01
    assert masks(right, wrong) == [[1, 3], [4]]
    assert masks(right, right) == []


def test_columns_far_smaller_are_looked_at_by_size_where_they_differ():
    right = rows(1e6, 1.0, 1.0, 2.0, 1e-3, 1.0, 3e6, 1e6, width=12).t().contiguous()
    wrong = right.clone()
    wrong[:, [1, 3, 4]] *= 1.01
    found = sorted(mask.any(0).nonzero()[:, 0].tolist() for mask in small_parts.small_parts(right, wrong, ALLOWED))
    assert found == [[1, 3], [4]]
    assert masks(right, right) == []
    assert not parts(right[:1], wrong[:1])  # columns of one element
    few = sorted(
        mask.any(0).nonzero()[:, 0].tolist() for mask in small_parts.narrow_parts(right[:7], wrong[:7], ALLOWED)
    )
    assert few == [[1, 3], [4]]
    assert not list(small_parts.small_parts(right[:7], wrong[:7], ALLOWED))
    (narrow,) = parts(right[:, :2], wrong[:, :2])  # a small column, and no small row
    assert narrow.any(0).tolist() == [False, True]


def test_roundings_of_a_row_and_rows_of_about_one_size_are_left_to_the_whole():
    right = rows(1e6, 1.0)
    assert masks(right, torch.nextafter(right, torch.zeros(()))) == []
    right = rows(8.0, 1.0)
    assert masks(right, right * 1.01) == []


def test_neither_infinity_nor_nan_is_a_size():
    right = rows(torch.inf, torch.nan, 1e6, 1.0)
    wrong = right.clone()
    wrong[3] *= 1.01
    assert masks(right, wrong) == [[3]]


def test_single_elements_count_beyond_what_float32_loses_of_the_largest():
    right = torch.tensor([256.0, -2.0, 1.5, 1e-2, 1e-6])
    (first, second) = small_parts.small_elements(right, right * 1.1, rounding(torch.bfloat16), ANY)
    assert first.tolist() == [False, True, True, False, False]
    assert second.tolist() == [False, False, False, True, False]
    assert not list(small_parts.small_elements(right, right * 1.001, rounding(torch.bfloat16), ANY))
    one, other = torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1e-3])
    (lost,) = small_parts.small_elements(one, other, rounding(torch.bfloat16), ANY)
    assert lost.tolist() == [False, True]
    for shape in ((), (0, 3)):
        nothing = small_parts.small_elements(torch.ones(shape), torch.zeros(shape), rounding(torch.bfloat16), ANY)
        assert not list(nothing)


def test_what_an_element_is_computed_of_says_what_may_be_lost():
    right, wrong = torch.tensor([[3e3, 1e-3], [3e3, 1e-3]]), torch.tensor([[3e3, 1.01e-3], [3e3, 1.01e-3]])
    assert not list(small_parts.small_elements(right, wrong, ALLOWED, ANY))
    (found,) = small_parts.small_elements(right, wrong, ALLOWED, torch.tensor([[1.0], [900.0]]))
    assert found.tolist() == [[False, True], [False, False]]


def test_a_tensor_that_is_one_part_has_no_small_ones():
    for shape in ((), (1,), (7,), (7, 1), (0, 9)):
        assert not parts(torch.ones(shape), torch.zeros(shape))


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10**6),
    st.sampled_from([(40, 9), (6, 7, 5), (3, 50), (2, 3, 4, 5)]),
    st.sampled_from([16, 64, 2**16]),
)
def test_blocks_and_strides_do_not_matter(seed, shape, block):
    generator = torch.Generator().manual_seed(seed)
    scales = 10.0 ** torch.randint(-8, 8, shape[:1], generator=generator)
    right = torch.randn(shape, generator=generator) * scales.view(-1, *[1] * (len(shape) - 1))
    wrong = right + (torch.rand(shape, generator=generator) > 0.9) * right * 1e-3
    turned = tuple(t.transpose(0, -1).contiguous().transpose(0, -1) for t in (right, wrong))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_parts, "BLOCK", block)
        patch.setattr(blocks, "BLOCK", block)
        found = list(small_parts.small_parts(*turned, ALLOWED))
        of_elements = list(small_parts.small_elements(*turned, ALLOWED, ANY))
    elements = torch.stack([torch.zeros(shape, dtype=torch.bool), *of_elements])
    width = next(w for w in (torch.Size(shape[-k:]).numel() for k in range(1, len(shape) + 1)) if w >= 8)
    gaps = (right.double() - wrong.double()).abs()

    def small(parts: torch.Tensor, apart: torch.Tensor) -> torch.Tensor:
        sizes = parts.abs().amax(-1).double()
        return ((sizes * small_parts.FAR < right.abs().max()) & (apart.amax(-1) > ALLOWED * sizes))[:, None]

    by_row = small(right.reshape(-1, width), gaps.reshape(-1, width)).expand(-1, width).reshape(shape)
    columns = [side.reshape(-1, shape[-1]).t() for side in (right, gaps)]
    by_column = small(*columns).expand(columns[0].shape).t().reshape(shape)
    by_column = by_column & (columns[0].shape[1] >= 8)
    union = torch.stack([torch.zeros(shape, dtype=torch.bool), *found]).any(0)
    assert torch.equal(union, by_row | by_column)
    assert sum(int(mask.sum()) for mask in found) == int(by_row.sum() + by_column.sum())
    size, gap = right.abs(), (right - wrong).abs()
    few = (size * small_parts.FAR < size.max()) & (gap > ALLOWED * (size + size.max() + torch.finfo(right.dtype).tiny))
    assert torch.equal(elements.sum(0), few.long())
