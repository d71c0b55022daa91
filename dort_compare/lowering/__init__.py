"""From an FX graph to an ONNX model, one small registered function an ATen overload."""

from dort_compare.lowering.decompositions import decompositions
from dort_compare.lowering.lower import lower
from dort_compare.lowering.lowered import Lowered
from dort_compare.lowering.registry import lowering, registered

__all__ = ["Lowered", "decompositions", "lower", "lowering", "registered"]
