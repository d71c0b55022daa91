"""What is compared: the parts of a Llama, in plain torch and from transformers, with weights and inputs from a seed."""

from dort_compare.models.llama import LlamaConfig
from dort_compare.models.parts import PARTS, SOURCES, build

__all__ = ["PARTS", "SOURCES", "LlamaConfig", "build"]
