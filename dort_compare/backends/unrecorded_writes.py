"""Writes to inputs that eager hides from autograd, as under ``no_grad`` and through ``x.detach()``."""

from __future__ import annotations

from dataclasses import replace

from torch._functorch._aot_autograd.schemas import InputAliasInfo, ViewAndMutationMeta


def hide_writes(metadata: ViewAndMutationMeta) -> None:
    """Has AOTAutograd write so, too, what it writes to an input that something has computed.

    It does to leaves alone. To autograd, others would be what is written, of which no gradient is known: theirs, and
    that of all that has computed them, would be 0.
    """
    metadata.input_info = [_as_leaf(each) if _is_hidden(each) else each for each in metadata.input_info]


def _is_hidden(told: InputAliasInfo) -> bool:
    is_unseen = told.mutations_hidden_from_autograd or told.mutations_under_no_grad_or_inference_mode
    return told.mutates_data and is_unseen


def _as_leaf(told: InputAliasInfo) -> InputAliasInfo:
    return replace(told, is_leaf=True)
