"""Outputs that have one name."""

from __future__ import annotations

import onnx
import pytest

from dort_compare.align.returned_twice import with_names_of_their_own

BRANCHES = """
    y = If (c) <
        then_branch = then () => (float[2] b) { b = Neg(x) },
        else_branch = other () => (float[2] d) { d = Exp(x) }
    >
"""


@pytest.mark.parametrize(
    "text",
    [
        f"agraph (float[2] x, bool c) => (float[2] y, float[2] y) {{ {BRANCHES} }}",
        "agraph (float[2] x, float[2] b) => (float[2] y, float[2] y) { y = Neg(x) }",
        "agraph (float[2] x) => (float[2] y, float[2] y) <float[2] b = {1, 2}> { y = Neg(x) }",
        "agraph (float[2] x) => (float[2] y, float[2] y) { b = Exp(x)\n y = Neg(b) }",
    ],
    ids=["nested", "input", "initializer", "value"],
)
def test_the_name_of_an_output_is_taken_by_no_other_value(text: str) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 20]>\n{text}')
    named = with_names_of_their_own(model, ["y", "b"])
    assert [value.name for value in named.graph.output] == ["y", "b_"]
    onnx.checker.check_model(named)
    assert [value.name for value in model.graph.output] == ["y", "y"]


def test_each_output_gets_the_name_of_ours_in_its_place() -> None:
    text = "agraph (float[2] x) => (float[2] y, float[2] z, float[2] y) { y = Neg(x)\n z = Exp(x) }"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 20]>\n{text}')
    assert [value.name for value in with_names_of_their_own(model).graph.output] == ["y", "z", "y_"]
    assert [value.name for value in with_names_of_their_own(model, ["a", "z", "y"]).graph.output] == ["a", "z", "y"]
    assert [value.name for value in with_names_of_their_own(model, ["a"]).graph.output] == ["y", "z", "y_"]
