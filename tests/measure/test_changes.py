"""What got better and worse between two reports."""

from __future__ import annotations

from typing import Any

import pytest

from dort_compare.measure.changes import changes, counted


def row(name: str, status: str = "ok", error: Any = 0.0, **more: Any) -> dict[str, Any]:
    gap = None if status == "unaligned" else {"max_abs": error, "finding": None}
    given = {"phase": "forward", "graph": 0, "fx_node": name, "target": "aten.mul.Tensor", "module": "", "source": ""}
    return {**given, "status": status, "inherited": gap, "local": gap, "noise_floor": 1.0, **more}


def report(*rows: dict[str, Any], outputs: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {"rows": list(rows), "outputs": list(outputs)}


def output(ok: bool, error: Any) -> dict[str, Any]:
    gap = {"max_abs": error, "finding": None}
    return {"kind": "gradient", "backend": "debug", "name": "w", "ok": ok, "distance": gap, "noise_floor": 1.0}


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
    assert [each.change for each in changes(report(old), report(new))] == [change]


def test_values_are_matched_by_graph_node_and_op() -> None:
    old = report(row("a"), row("b"), row("a", phase="backward", graph=1))
    new = report(row("a", graph=4), row("b", target="aten.add.Tensor", graph=4), row("a", phase="backward", graph=5))
    found = changes(old, new)
    assert [(each.where, each.name, each.change) for each in found] == [
        ("forward 0", "a", "same"), ("forward 0", "b", "new"), ("backward 0", "a", "same"), ("forward 0", "b", "gone"),
    ]  # fmt: skip
    assert counted(found) == {"same": 2, "new": 1, "gone": 1}


def test_a_finding_is_infinitely_far() -> None:
    nan = row("a", "diverges", local={"max_abs": 0.0, "finding": "1 NaN"})
    (found,) = changes(report(row("a")), report(nan))
    assert found.to_json()["new_error"] == "inf"


def test_outputs_and_gradients_count_too() -> None:
    (found,) = changes(report(outputs=(output(True, 0.5),)), report(outputs=(output(False, 7.0),)))
    assert (found.change, found.what, found.name, found.new_error) == ("worse", "gradient", "w", 7.0)
