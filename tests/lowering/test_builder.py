"""What a lowering may rely on when it writes ``op.Add(x, 1)``: constants, attributes, dtypes, shapes, errors."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest
import torch
from torch import fx

from dort_compare.errors import LoweringError
from dort_compare.lowering.builder import Builder
from dort_compare.provenance import Provenance

FLOAT, HALF, INT64 = ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT64


@pytest.fixture
def op() -> Builder:
    builder = Builder.of_new_graph("graph", 20)
    node = fx.Graph().placeholder("node")
    builder.enter(node, Provenance.of(node, "inference"))
    return builder


def value(name: str, dtype: ir.DataType, *shape: int | str) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))


def inputs_of(result: ir.Value) -> list[Any]:
    """The inputs of the node behind a value: constants as numbers with their dtypes."""
    producer = result.producer()
    assert producer is not None
    return [v and (v.const_value.numpy().tolist(), v.dtype) if v and v.const_value else v for v in producer.inputs]


def test_a_number_takes_the_dtype_of_the_values_of_its_type(op: Builder) -> None:
    x, y, condition = value("x", HALF, 2), value("y", FLOAT, 2), value("c", ir.DataType.BOOL, 2)
    assert inputs_of(op.Add(x, 1)) == [x, (1.0, HALF)]
    assert inputs_of(op.Add(1, y)) == [(1.0, FLOAT), y]
    assert inputs_of(op.Where(condition, 2, x)) == [condition, (2.0, HALF), x]
    assert inputs_of(op.Max(x, 0, 3)) == [x, (0.0, HALF), (3.0, HALF)]
    assert inputs_of(op.Clip(x, None, 1)) == [x, None, (1.0, HALF)]
    assert inputs_of(op.Pow(x, 2)) == [x, (2, INT64)]
    assert inputs_of(op.Reshape(x, [1, 2])) == [x, ([1, 2], INT64)]


def test_alike_constants_are_held_once(op: Builder) -> None:
    x = value("x", FLOAT, 2)
    op.Mul(op.Add(x, 1), 1)
    op.Add(value("y", HALF, 2), 1)
    op.Pow(x, -0.0), op.Pow(x, 0.0)
    assert [v.dtype for v in op.graph.initializers.values()] == [FLOAT, HALF, FLOAT, FLOAT]


def test_attributes_have_the_types_of_the_schema(op: Builder) -> None:
    made = op.Elu(value("x", FLOAT, 2), alpha=2).producer()
    assert made.attributes["alpha"] == ir.AttrFloat32("alpha", 2.0)
    made = op.Transpose(value("y", FLOAT, 2, 3), perm=(1, 0)).producer()
    assert made.attributes["perm"] == ir.AttrInt64s("perm", [1, 0])
    with pytest.raises(TypeError, match="Elu has no attribute axis, beta"):
        op.Elu(value("z", FLOAT, 2), beta=1, axis=0)


def test_dtypes_and_shapes_are_inferred_of_all_that_they_depend_on(op: Builder) -> None:
    x, y, half = value("x", FLOAT, 2, 6), value("y", HALF, "n", 6), value("half", HALF, 2, 6)
    scale = value("scale", FLOAT, 6)
    results = [
        (op.Reshape(x, [3, 4]), FLOAT, [3, 4]),
        (op.Reshape(x, [4, 3]), FLOAT, [4, 3]),
        (op.Reshape(x, [2, 2, 3]), FLOAT, [2, 2, 3]),
        (op.Transpose(x, perm=[0, 1]), FLOAT, [2, 6]),
        (op.Transpose(x, perm=[1, 0]), FLOAT, [6, 2]),
        (op.Transpose(half, perm=[1, 0]), HALF, [6, 2]),
        (op.Transpose(y, perm=[1, 0]), HALF, [6, "n"]),
        (op.Cast(y, to=FLOAT), FLOAT, ["n", 6]),
        (op.Cast(y, to=INT64), INT64, ["n", 6]),
        (op.Split(x, axis=1, num_outputs=2, _outputs=2)[1], FLOAT, [2, 3]),
        (op.Split(x, axis=1, num_outputs=3, _outputs=3)[1], FLOAT, [2, 2]),
        (op.LayerNormalization(x, scale), FLOAT, [2, 6]),
        (op.LayerNormalization(x, scale, _outputs=3)[1], FLOAT, [2, 1]),
        (op.Shape(x), INT64, [2]),
        (op.Shape(value("z", FLOAT)), INT64, [0]),
    ]
    for result, dtype, shape in [*results, (op.Transpose(x, perm=[1, 0]), FLOAT, [6, 2])]:
        assert (result.dtype, result.shape) == (dtype, ir.Shape(shape))


def test_what_onnx_refuses_is_refused_where_it_is_written(op: Builder) -> None:
    x, y = value("x", FLOAT, 2, 3), value("y", FLOAT, 2, 3)
    illegal = r"ONNX node node\.MatMul.* \(MatMul\) is not legal: .*Incompatible dimensions"
    for _ in range(2):
        with pytest.raises(LoweringError, match=illegal):
            op.MatMul(x, y)
    with pytest.raises(LoweringError, match="is not legal"):
        op.Add(x, y, y)
    with pytest.raises(LoweringError, match="is not legal: the type of unknown is not known"):
        op.Neg(ir.Value(name="unknown"))
    with pytest.raises(LoweringError, match="ONNX has no operator BitCast in opset 20"):
        op.BitCast(x, to=INT64)


def test_nodes_carry_what_the_fx_node_is_and_in_which_dtype_it_is_computed(op: Builder) -> None:
    x = value("x", FLOAT, 2)
    plain = op.Neg(x).producer()
    op.computing_in(torch.float64)
    wide = op.Neg(x).producer()
    assert plain.metadata_props["dort_compare.fx_node"] == wide.metadata_props["dort_compare.fx_node"] == "node"
    assert "dort_compare.computed_in" not in plain.metadata_props
    assert wide.metadata_props["dort_compare.computed_in"] == "float64"
    assert [plain.name, wide.name] == ["node.Neg", "node.Neg.1"]


def test_a_size_that_is_known_is_a_constant(op: Builder) -> None:
    x, y = value("x", FLOAT, 2, 3), value("y", FLOAT, "n", 3)
    made = op.Shape(x), op.Shape(x, start=1), op.Shape(x, end=-1), op.Shape(y, start=1, end=2), op.Size(x)
    assert [size.const_value.numpy().tolist() for size in made] == [[2, 3], [3], [2], [3], 6]
    assert {size.dtype for size in made} == {INT64}
    assert [op.Shape(y).producer().op_type, op.Size(y).producer().op_type] == ["Shape", "Size"]
    assert (op.own_size(x, -1), op.own_size(op.Add(y, 1), -1)) == (3, 3)
    assert op.own_size(y, -2).producer().op_type == "Squeeze"
