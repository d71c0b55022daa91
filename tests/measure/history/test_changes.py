"""What got better and worse from run to run."""

from __future__ import annotations

from typing import Any

import pytest
from past_reports import output, report, row

from dort_compare.measure.history.changes import Course, courses
from dort_compare.measure.history.runs import run_of
from dort_compare.report.changes import changes_text


def changes(*reports: dict[str, Any]) -> list[Course]:
    return courses([run_of(each) for each in reports])


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        (row("a"), row("a"), "same"),
        (row("a", error=0.1), row("a", error=0.9), "same"),  # within the noise, whatever the factor
        (row("a", error=2.0), row("a", error=3.0), "same"),
        (row("a", error=2.0), row("a", error=5.0), "worse"),
        (row("a", error=5.0), row("a", error=2.0), "better"),
        (row("a", error=5.0), row("a", error="inf"), "worse"),
        (row("a"), row("a", "diverges", 9.0), "worse"),
        (row("a", "diverges", 9.0), row("a", "inherits", 9.0), "better"),
        (row("a", "inherits", 9.0), row("a"), "better"),
        (row("a"), row("a", "unaligned"), "worse"),
        (row("a", "diverges", 9.0), row("a", "unaligned"), "better"),
        (row("a", "unaligned"), row("a", "unaligned"), "same"),
    ],
)
def test_a_value_is_worse_by_status_or_by_an_error_beyond_the_noise(old, new, change) -> None:
    (found,) = changes(report(old), report(new))
    assert (found.latest, found.overall) == (change, change)


def test_values_are_matched_by_graph_node_and_op() -> None:
    old = report(row("a"), row("b"), row("a", phase="backward", graph=1))
    new = report(row("a", graph=4), row("b", target="aten.add.Tensor", graph=4), row("a", phase="backward", graph=5))
    found = changes(old, new)
    assert [(each.key.where, each.key.name, each.latest) for each in found] == [
        ("forward 0", "a", "same"), ("forward 0", "b", "new"), ("backward 0", "a", "same"), ("forward 0", "b", "gone"),
    ]  # fmt: skip


def test_a_finding_is_infinitely_far() -> None:
    nan = row("a", "diverges", local={"max_abs": 0.0, "finding": "1 NaN"})
    (found,) = changes(report(row("a")), report(nan))
    assert found.to_json()["errors"] == {"0": 0.0, "1": "inf"}
    assert run_of(report(nan)).to_json()["worst"] == "inf"


def test_outputs_and_gradients_count_too() -> None:
    (found,) = changes(report(outputs=(output(True, 0.5),)), report(outputs=(output(False, 7.0),)))
    assert (found.latest, found.key.what, found.key.name, found.states[1].error) == ("worse", "gradient", "w", 7.0)


BAD, FINE, ODD = row("a", "diverges", 9.0), row("a"), row("a", "unaligned")


@pytest.mark.parametrize(
    ("states", "latest", "overall", "since", "is_quiet"),
    [
        ((FINE, FINE, FINE), "same", "same", 0, True),
        ((None, FINE, FINE), "same", "new", 1, True),
        ((None, None, FINE), "new", "new", 2, True),
        ((FINE, FINE, None), "gone", "gone", 2, True),
        ((None, FINE, None), "gone", "gone", 2, True),
        ((FINE, None, None), "gone", "gone", 1, True),
        ((FINE, None, FINE), "new", "same", 2, True),
        ((FINE, BAD, BAD), "same", "worse", 1, False),
        ((FINE, BAD, FINE), "better", "same", 2, False),
        ((BAD, FINE, FINE), "same", "better", 1, False),
        ((BAD, BAD, BAD), "same", "same", 0, False),
        ((ODD, ODD, ODD), "same", "same", 0, False),
        ((FINE, BAD, ODD), "better", "worse", 2, False),
        ((row("a", error=2.0), row("a", error=3.0), row("a", error=5.0)), "same", "worse", 1, True),
        ((row("a", error=9.0), row("a", error=2.0), row("a", error=5.0)), "worse", "same", 2, False),
    ],
)
def test_a_value_has_a_course_through_the_runs(states, latest, overall, since, is_quiet) -> None:
    (found,) = changes(*(report(*filter(None, [state])) for state in states))
    assert (found.latest, found.overall, found.since, found.is_quiet) == (latest, overall, since, is_quiet)
    assert set(found.to_json()["statuses"]) == {str(i) for i, state in enumerate(states) if state}


def test_counts_are_of_what_either_run_has() -> None:
    reports = [report(row("a"), row("b")), report(row("a"), row("c")), report(row("a"))]
    text = changes_text([run_of(each) for each in reports], changes(*reports))
    assert "from run 2 to 3: 1 gone, 1 the same\n" in text
    assert "from run 1 to 3: 1 gone, 1 the same" in text


def test_a_value_without_a_floor_departs_by_any_error() -> None:
    bare = row("a", error=2.0)
    del bare["noise_floor"]
    (found,) = changes(report(bare), report(bare))
    assert found.latest == "same"
