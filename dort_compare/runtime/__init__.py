"""From an ONNX model to a callable on torch tensors."""

from dort_compare.runtime.opsets import newest_opset
from dort_compare.runtime.program import Program
from dort_compare.runtime.providers import SessionSettings

__all__ = ["Program", "SessionSettings", "newest_opset"]
