"""Models of transformers that hear."""

from __future__ import annotations

from collections.abc import Callable

import torch

from dort_compare.models.families.family import Member, pretrained
from dort_compare.models.families.text import VOCABULARY, tokens


def _whisper() -> Member:
    model = pretrained(
        "AutoModelForSpeechSeq2Seq",
        "whisper",
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        vocab_size=VOCABULARY,
        num_mel_bins=8,
        max_source_positions=16,
        max_target_positions=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    return Member(model, (), {"input_features": torch.randn(2, 8, 32), "decoder_input_ids": tokens(5)})


def _wav2vec2() -> Member:
    model = pretrained(
        "AutoModel",
        "wav2vec2",
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=64,
        conv_dim=[8, 8],
        conv_stride=[4, 2],
        conv_kernel=[8, 4],
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
        mask_time_prob=0.0,
    )
    return Member(model, (), {"input_values": torch.randn(2, 400)})


MEMBERS: dict[str, Callable[[], Member]] = {"Whisper": _whisper, "wav2vec 2.0": _wav2vec2}
