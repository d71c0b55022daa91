"""What ``step.py`` times: the parts of a Llama, and models of transformers in the widths that people use."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from dort_compare.models import PARTS, build
from dort_compare.models.llama import LlamaConfig

FAMILIES = {"GPT-2": "2x512", "BERT": "2x512", "ResNet": "4x224"}
"""Models of transformers with the size that they are timed at: batch and tokens, or batch and side of the images."""
PARTS_AND_FAMILIES = (*PARTS, *FAMILIES)
VOCABULARY = 4000
_TEXT = {"vocab_size": VOCABULARY, "use_cache": False}
_NO_DROPOUT = {"GPT-2": ("resid_pdrop", "embd_pdrop", "attn_pdrop"),
               "BERT": ("hidden_dropout_prob", "attention_probs_dropout_prob")}  # fmt: skip


class Logits(nn.Module):
    """A model of transformers that returns nothing but its logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.model(inputs).logits


def model_of(part: str, layers: int, size: tuple[int, int]) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A model in training mode, without dropout, with its inputs; random weights, always the same."""
    if part in PARTS:
        return build(part, LlamaConfig(layers=layers), batch=size[0], seq=size[1])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Logits(_family(part, layers)).train()
        images = torch.randn(size[0], 3, size[1], size[1])
        return model, (images if part == "ResNet" else torch.randint(VOCABULARY, size),)


def _family(part: str, layers: int) -> nn.Module:
    import transformers as hf  # noqa: PLC0415  (seconds that a run of the Llama parts does without)

    off: dict[str, Any] = dict.fromkeys(_NO_DROPOUT.get(part, ()), 0.0)
    if part == "GPT-2":
        return hf.GPT2LMHeadModel(hf.GPT2Config(n_layer=layers, **_TEXT, **off))
    if part == "BERT":
        return hf.BertForMaskedLM(hf.BertConfig(num_hidden_layers=layers, vocab_size=VOCABULARY, **off))
    return hf.ResNetForImageClassification(hf.ResNetConfig(layer_type="basic", depths=[2, 2, 2, 2],
                                                           hidden_sizes=[64, 128, 256, 512]))  # fmt: skip
