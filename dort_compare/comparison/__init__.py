"""A model, its compiled graphs and their ONNX models, held against one another: the stages of a comparison in order."""

from dort_compare.comparison.compare import compare_with
from dort_compare.comparison.effort import Effort

__all__ = ["Effort", "compare_with"]
