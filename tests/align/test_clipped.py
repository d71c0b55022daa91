"""What a quantizer clips by quantizing stands for the activation that it dropped."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from torch import Tensor, nn

from dort_compare.align import values_of_fx_nodes
from dort_compare.align.adopted import adopted
from dort_compare.align.clipped import clipped_by_quantization


class Clipping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x).relu())


def quantized(own: onnx.ModelProto) -> onnx.ModelProto:
    """As ONNX Runtime's quantizer leaves it: no Relu, its name at what is quantized and dequantized then."""
    model = onnx.ModelProto()
    model.CopyFrom(own)
    nodes = list(model.graph.node)
    place = next(i for i, node in enumerate(nodes) if node.op_type == "Relu")
    before = next(node for node in nodes if nodes[place].input[0] in node.output)
    before.output[0] = "relu"
    for node in nodes[place + 1 :]:
        node.input[:] = ["back" if name == "relu" else name for name in node.input]
    nodes[place : place + 1] = [
        helper.make_node("QuantizeLinear", ["relu", "step", "zero"], ["whole"]),
        helper.make_node("DequantizeLinear", ["whole", "step", "zero"], ["back"]),
    ]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    constants = {"step": torch.tensor(0.01), "zero": torch.tensor(0, dtype=torch.uint8)}
    model.graph.initializer.extend(numpy_helper.from_array(v.numpy(), name) for name, v in constants.items())
    return model


def makers(own: onnx.ModelProto, other: onnx.ModelProto) -> list[str]:
    """The operators that make the value that stands for the activation."""
    model = adopted(own, other)
    name = values_of_fx_nodes(model)["relu"].name
    return [node.op_type for node in model.graph.node if name in node.output]


@pytest.fixture
def own(graphs_of: Any) -> onnx.ModelProto:
    with torch.no_grad():
        (graph,) = graphs_of(Clipping(), torch.randn(1, 3, 6, 6))
    return graph.onnx_model


def test_an_activation_that_a_quantization_does_stands_behind_it(own: onnx.ModelProto) -> None:
    other = quantized(own)
    assert makers(own, own) == ["Relu"]
    assert makers(own, other) == ["DequantizeLinear"]
    assert adopted(own, other).graph.output == own.graph.output


def test_what_is_read_besides_stands_where_it_bears_the_name(own: onnx.ModelProto) -> None:
    other = quantized(own)
    other.graph.node.append(helper.make_node("Neg", ["relu"], ["read"]))
    assert makers(own, other) == ["Conv"]


def test_what_is_clipped_before_it_is_quantized_stands_where_it_bears_the_name(own: onnx.ModelProto) -> None:
    other = quantized(own)
    place, conv = next((i, node) for i, node in enumerate(other.graph.node) if "relu" in node.output)
    conv.output[0] = "unclipped"
    other.graph.node.insert(place + 1, helper.make_node("Relu", ["unclipped"], ["relu"]))
    assert makers(own, other) == ["Relu"]


TWICE = """
<ir_version: 10, opset_import: ["" : 20]>
g (float[4] x) => (float[4] z) <float step = {0.1}, uint8 zero = {0}> {
    a = Exp(x)
    whole = QuantizeLinear(a, step, zero)
    b = DequantizeLinear(whole, step, zero)
    again = QuantizeLinear(b, step, zero)
    z = DequantizeLinear(again, step, zero)
}
"""


@pytest.mark.parametrize("names", [["b"], ["a", "b"]])
def test_what_is_returned_or_clipped_in_turn_keeps_its_name(names: list[str]) -> None:
    """What is behind ``b`` is the output; behind ``a`` stands ``b``, which may be such a value itself."""
    other = onnx.parser.parse_model(TWICE)
    own = onnx.ModelProto()
    own.graph.node.extend(helper.make_node("Relu", [f"{name}.before"], [name]) for name in names)
    assert clipped_by_quantization(other, own) == other
