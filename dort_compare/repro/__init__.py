"""One FX node on its own: the few ONNX nodes, their operands and expected values, and a script to run them."""

from dort_compare.repro.case import case_of
from dort_compare.repro.folder import write_case

__all__ = ["case_of", "write_case"]
