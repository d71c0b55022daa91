"""From an ONNX model to a callable on torch tensors."""

from dort_compare.runtime.program import Program
from dort_compare.runtime.providers import SessionSettings, newest_opset

__all__ = ["Program", "SessionSettings", "newest_opset"]
