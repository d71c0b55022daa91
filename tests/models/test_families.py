"""A member of every model family trains through ONNX Runtime as in eager, value by value and against float64."""

from __future__ import annotations

import pytest
import torch

from dort_compare import compare
from dort_compare.errors import UsageError
from dort_compare.models.families import FAMILIES, build_family

EVERY_DAY = {"GPT-2", "ResNet", "MoE"}


@pytest.mark.parametrize(
    "name", [name if name in EVERY_DAY else pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES]
)
def test_agrees(name: str) -> None:
    try:
        model, args, kwargs = build_family(name)
    except UsageError as problem:
        pytest.skip(str(problem))
    report = compare(model, args, kwargs, backward=True)
    assert report.verdict == "agree", str(report)
    assert not report.fallbacks
    assert {row.phase for row in report.rows} == {"forward", "backward"}
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert {row.name for row in report.outputs if row.kind == "gradient"} >= trained


def test_a_member_depends_on_the_seed_alone() -> None:
    state = torch.get_rng_state()
    first, second = build_family("MoE"), build_family("MoE")
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(first.args[0], second.args[0])
    assert not torch.equal(first.args[0], build_family("MoE", seed=1).args[0])


def test_an_unknown_family_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="'Lama' is unknown: choose one of Llama, Mistral"):
        build_family("Lama")
