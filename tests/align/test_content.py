"""What a sketch tells of a tensor's content."""

from __future__ import annotations

import pytest
import torch

from dort_compare.align.content import sketch


@pytest.mark.parametrize("others", [[], [torch.inf], [torch.finfo(torch.float32).min]])
def test_the_sign_of_zero_makes_no_other_content(others: list[float]) -> None:
    one, other = (sketch(torch.tensor([zero, 1.0, *others])) for zero in (0.0, -0.0))
    assert one.exact == other.exact
