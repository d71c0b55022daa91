"""Language models of transformers: decoders, encoders, and both."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from dort_compare.models.families.family import Member, pretrained

VOCABULARY = 100
_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "vocab_size": VOCABULARY}
_SIZES = {
    **_TOKENS,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
_GROUPED = {**_SIZES, "num_key_value_heads": 2}
_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
_GPT_OSS = {"head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 4}
_HEADS = {"num_heads": 8, "head_dim": 8, "n_groups": 2}
_MAMBA_2 = {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "chunk_size": 4, **_HEADS}
_BOTH = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
_BART = {**_TOKENS, **_BOTH, "d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
_T5 = {**_TOKENS, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}


def tokens(length: int) -> torch.Tensor:
    """int64 (2, length), none of them special."""
    return torch.randint(3, VOCABULARY, (2, length))


def language_model(auto: str, model_type: str, **sizes: Any) -> Member:
    """A model that reads int64 tokens (2, 12), the second row padded on the right."""
    mask = torch.ones(2, 12, dtype=torch.int64)
    mask[1, 9:] = 0
    return Member(pretrained(auto, model_type, **sizes), (), {"input_ids": tokens(12), "attention_mask": mask})


def _two_sided(model_type: str, **sizes: Any) -> Member:
    member = language_model("AutoModelForSeq2SeqLM", model_type, **sizes)
    return member._replace(kwargs={**member.kwargs, "decoder_input_ids": tokens(7)})


_causal = functools.partial(functools.partial, language_model, "AutoModelForCausalLM")
_masked = functools.partial(functools.partial, language_model, "AutoModelForMaskedLM")
_seq2seq = functools.partial(functools.partial, _two_sided)

MEMBERS: dict[str, Callable[[], Member]] = {
    "Llama": _causal("llama", **_GROUPED),
    "Mistral": _causal("mistral", **_GROUPED, sliding_window=4),
    "Qwen2": _causal("qwen2", **_GROUPED),
    "Qwen3": _causal("qwen3", **_GROUPED, head_dim=8),
    "Phi": _causal("phi", **_SIZES),
    "Phi-3": _causal("phi3", **_GROUPED),
    "Gemma 2": _causal("gemma2", **_GROUPED, head_dim=8),
    "OLMo 2": _causal("olmo2", **_GROUPED),
    "GPT-2": _causal("gpt2", **_TOKENS, n_embd=32, n_layer=2, n_head=4, n_positions=64),
    "GPT-NeoX": _causal("gpt_neox", **_SIZES),
    "OPT": _causal("opt", **_SIZES, ffn_dim=64, word_embed_proj_dim=32),
    "BLOOM": _causal("bloom", **_TOKENS, hidden_size=32, n_layer=2, n_head=4),
    "Falcon": _causal("falcon", **_TOKENS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4),
    "Mamba": _causal("mamba", **_TOKENS, hidden_size=32, num_hidden_layers=2, state_size=8),
    "Mixtral": _causal("mixtral", **_GROUPED, num_local_experts=4),
    "Qwen2-MoE": _causal("qwen2_moe", **_GROUPED, **_EXPERTS, num_experts=4, shared_expert_intermediate_size=32),
    "GPT-OSS": _causal("gpt_oss", **_GROUPED, **_GPT_OSS),
    "Mamba 2": _causal("mamba2", **_TOKENS, **_MAMBA_2),
    "BERT": _masked("bert", **_SIZES),
    "RoBERTa": _masked("roberta", **_SIZES),
    "DistilBERT": _masked("distilbert", **_TOKENS, dim=32, n_layers=2, n_heads=4, hidden_dim=64),
    "DeBERTa": _masked("deberta-v2", **_SIZES, relative_attention=True, pos_att_type=["p2c", "c2p"]),
    "ModernBERT": _masked("modernbert", **_SIZES, cls_token_id=1, sep_token_id=2),
    "T5": _seq2seq("t5", **_T5),
    "BART": _seq2seq("bart", **_BART, max_position_embeddings=64),
}
