"""The model that is compared, in plain eager and in float64."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dort_compare.comparison.subject import Subject
from dort_compare.report.progress import Waiting
from dort_compare.trace.call import Call


class Counting(nn.Module):
    """Remembers the dtypes that it was run in, in a list of the caller's."""

    def __init__(self, seen: list[torch.dtype]) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 2)
        self.see = seen.append

    def forward(self, x: Tensor) -> Tensor:
        self.see(x.dtype)
        return self.inner(x)


def subject(seen: list[torch.dtype]) -> Subject:
    return Subject(Counting(seen), Call((torch.ones(1, 3),)), Waiting())


def test_float64_is_run_once_when_it_is_first_asked_for() -> None:
    seen: list[torch.dtype] = []
    compared = subject(seen)
    assert seen == []
    assert compared.exact() is compared.exact()
    assert seen == [torch.float64]
    compared.run_in_float64()
    assert seen == [torch.float64] * 2


def test_eager_is_run_in_the_models_own_dtype_and_its_modules_are_watched() -> None:
    seen: list[torch.dtype] = []
    compared = subject(seen)
    outcome, modules = compared.run_watched()
    assert (compared.precision, seen) == (torch.float32, [torch.float32])
    assert torch.equal(outcome.outputs["output"], compared.run().outputs["output"])
    assert {place.call.module for place in modules.held} == {"", "inner"}
