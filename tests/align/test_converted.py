"""Which models are converted to a coarser dtype, and what they hold in it."""

from __future__ import annotations

import onnx
import pytest

from dort_compare.align.converted import as_computed, is_converted
from dort_compare.align.tensor_types import Type, types_of

FLOAT = Type(elem_type=onnx.TensorProto.FLOAT)


def model(body: str) -> onnx.ModelProto:
    text = f'<ir_version: 10, opset_import: ["" : 20]> g (float[2] x) => (float[2] y) {{ {body} }}'
    return onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a = Exp(x) b = Tanh(a) y = Sin(b)", False),
        ("h = Cast<to = 10>(x) a = Exp(h) b = Tanh(a) c = Sin(b) y = Cast<to = 1>(c)", True),
        ("h = Cast<to = 10>(x) c = Exp(h) y = Cast<to = 1>(c)", True),
        ("h = Cast<to = 10>(x) a = Exp(h) b = Tanh(a) d = Cast<to = 1>(b) y = Sin(d)", True),
        ("h = Cast<to = 10>(x) c = Exp(h) a = Cast<to = 1>(c) b = Tanh(a) y = Sin(b)", False),
        ("r = Exp(x) h = Cast<to = 10>(r) a = Cast<to = 1>(h) b = Tanh(a) y = Sin(b)", False),
        ("r = Exp(x) a = Cast<to = 10>(r) b = Identity(a) c = Cast<to = 1>(b) y = Sin(c)", False),
    ],
    ids=["float32", "all", "the only op", "but for one op", "one op of three", "a cast and back", "held after a cast"],
)
def test_a_model_is_converted_where_it_computes_in_half_precision(body: str, expected: bool) -> None:
    other = model(body)
    computed = {name for node in other.graph.node for name in node.output}
    ours = {name: FLOAT for name in ("a", "b", "y") if name in computed}
    assert is_converted(other, types_of(other), ours) == expected


@pytest.mark.parametrize("names", [("a", "b", "y"), ("y", "b", "a")])
def test_one_of_the_values_that_show_what_is_computed_is_enough(names: tuple[str, ...]) -> None:
    other = model("h = Cast<to = 10>(x) a = Exp(h) b = Identity(a) y = Cast<to = 1>(b)")
    ours = {"a": FLOAT, "b": Type(elem_type=onnx.TensorProto.FLOAT16), "y": FLOAT}
    for known in (names, names[:2]):
        assert is_converted(other, types_of(other), {name: ours[name] for name in known})


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("h = Cast<to = 10>(x) a = Exp(h) y = Cast<to = 1>(a)", onnx.TensorProto.FLOAT16),
        ("a = Exp(x) h = Cast<to = 10>(a) b = Transpose(h) y = Cast<to = 1>(b)", onnx.TensorProto.FLOAT16),
        ("a = Exp(x) h = Cast<to = 10>(a) b = Cast<to = 1>(h) y = Sin(b)", onnx.TensorProto.FLOAT),
    ],
    ids=["computed so", "rounded on the way", "an operand"],
)
def test_a_value_of_ours_is_as_coarse_as_what_it_is_cast_from(body: str, expected: int) -> None:
    own = model(body)
    assert as_computed(own, types_of(own))["y"].elem_type == expected


@pytest.mark.parametrize("operator", ["Identity", "Cast<to = 1>"])
def test_values_that_show_one_another_in_a_circle_are_computed_by_none(operator: str) -> None:
    other = model(f"a = {operator}(y) y = {operator}(a)")
    assert not is_converted(other, types_of(other), {"y": FLOAT})
