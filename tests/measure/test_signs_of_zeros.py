"""A zero whose sign is lost is no error of its own; what reads the sign departs, in the comparison and in its dump."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from of_function import Of
from torch import Tensor

from dort_compare import compare
from dort_compare.lowering import registry
from dort_compare.offline import check

aten = torch.ops.aten
READERS: dict[Any, Callable[[Tensor, Tensor], Tensor]] = {
    aten.atan2.default: lambda zero, x: torch.atan2(zero, x),
    aten.copysign.Tensor: lambda zero, x: torch.copysign(x, zero),
    aten.signbit.default: lambda zero, x: torch.where(torch.signbit(zero), x, -x),
    aten.reciprocal.default: lambda zero, x: 1 / zero,
}
HIDING: dict[str, Callable[[Tensor], Tensor]] = {
    "atan": torch.atan,
    "tanh": torch.tanh,
    "clamp": lambda x: x.clamp(-5, 5),
}
"""What makes finite numbers of infinities."""
X = torch.linspace(-2, 2, 9)


def with_lost_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes ``ceil`` of -0.5 a zero of the other sign."""
    right = registry.registered()[aten.ceil.default]
    monkeypatch.setitem(registry._TABLE, aten.ceil.default, lambda op, x: op.Where(op.Equal(x, -0.5), 0, right(op, x)))


def read_by(reader: Any) -> Of:
    return Of(lambda x: READERS[reader](x.ceil(), x))


@pytest.mark.parametrize("reader", READERS, ids=str)
def test_what_reads_a_lost_sign_departs(reader: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_lost_signs(monkeypatch)
    found = compare(read_by(reader), (X,), dump=tmp_path / "dump")
    for report in (found, check(tmp_path / "dump")):
        assert report.verdict == "diverge"
        assert report.causes[0].target == str(reader)
        assert "a zero that it reads has the other sign" in report.causes[0].reason


@pytest.mark.parametrize("reader", READERS, ids=str)
def test_signs_that_are_kept_agree(reader: Any, tmp_path: Path) -> None:
    found = compare(read_by(reader), (X,), dump=tmp_path / "dump")
    assert (found.verdict, check(tmp_path / "dump").verdict) == ("agree", "agree")


@pytest.mark.parametrize("name", HIDING)
def test_infinities_that_a_lost_sign_has_turned_are_seen_behind_what_hides_them(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_lost_signs(monkeypatch)
    found = compare(Of(lambda x: HIDING[name](1 / x.ceil())), (X,), dump=tmp_path / "dump")
    for report in (found, check(tmp_path / "dump")):
        assert [cause.target for cause in report.causes] == ["aten.reciprocal.default"]
