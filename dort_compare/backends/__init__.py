"""What torch.compile is given."""

from dort_compare.backends.debug import DebugBackend, debug_backend, debug_compiler
from dort_compare.backends.fallback import Fallback
from dort_compare.backends.onnxrt import onnxrt
from dort_compare.backends.options import Options
from dort_compare.backends.recorded_runs import CompiledGraph, Run

__all__ = ["CompiledGraph", "DebugBackend", "Fallback", "Options", "Run", "debug_backend", "debug_compiler", "onnxrt"]
