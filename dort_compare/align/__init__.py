"""Which value of one trace is held against which value of the other, and why."""

from dort_compare.align.models import ModelPair, align_models
from dort_compare.align.provenance import values_of_fx_nodes

__all__ = ["ModelPair", "align_models", "values_of_fx_nodes"]
