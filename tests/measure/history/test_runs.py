"""What a report says of a run, and which reports are of one model."""

from __future__ import annotations

import pytest
from past_reports import output, report, row

from dort_compare.measure.history.runs import is_one_model, run_of


def test_a_run_says_what_departs_and_how_far() -> None:
    run = run_of(report(row("a", "diverges", 9.0), row("b", "inherits", 11.0), outputs=(output(False, 7.0),)), "a.json")
    told = {"name": "a.json", "verdict": "agree", "summary": "agree", "settings": {}, "environment": {}}
    assert run.to_json() == {**told, "departing": 2, "worst": 11.0}
    assert run_of(report(row("a", "unaligned"))).worst is None


def test_noise_that_a_right_value_inherits_is_no_measure_of_a_run() -> None:
    """It is bounded by what roundings on the way may come to, not by the floor of one op."""
    inherits_much = row("a", "ok", 0.5, inherited={"max_abs": 1e3, "finding": None})
    assert run_of(report(inherits_much)).worst == 0.5
    assert run_of(report({**inherits_much, "local": None})).worst == 1e3


@pytest.mark.parametrize(
    ("others", "is_one"),
    [
        ([("mul", "0"), ("add", "0"), ("tanh", "1")], True),
        ([("mul", "0")], True),  # a part of it
        ([("mul", "0"), ("tanh", "0"), ("tanh", "1")], False),
        ([("mul", "2"), ("add", "2")], False),
        ([], True),  # nothing was compared
    ],
)
def test_reports_are_of_one_model_whose_ops_in_modules_are(others, is_one) -> None:
    one, other = (
        run_of(report(*(row(f"{op}_{i}", target=op, module=module) for i, (op, module) in enumerate(ops))))
        for ops in ([("mul", "0"), ("add", "0"), ("add", "1")], others)
    )
    assert is_one_model(one, other) is is_one_model(other, one) is is_one


def test_gradients_tell_models_apart() -> None:
    one, other = (run_of(report(outputs=({**output(True, 0.0), "name": name},))) for name in ("0.weight", "1.weight"))
    assert is_one_model(one, one)
    assert not is_one_model(one, other)
