"""Runs the graphs of torch.compile, forward and backward, on ONNX Runtime and says where they depart from eager."""

from dort_compare.api import compare
from dort_compare.backends import DebugBackend, debug_backend, debug_compiler, onnxrt
from dort_compare.errors import DortError
from dort_compare.report import Report

__all__ = ["DebugBackend", "DortError", "Report", "compare", "debug_backend", "debug_compiler", "onnxrt"]
