"""One entry point for the parts of a Llama: a module with seeded weights, and the inputs to call it with."""

from __future__ import annotations

import torch
from torch import nn

from dort_compare.errors import UsageError
from dort_compare.models import hf, llama

PARTS = ("attention", "decoder", "model")
SOURCES = ("native", "hf")

_NATIVE: dict[str, type[nn.Module]] = dict(zip(PARTS, (llama.Attention, llama.Decoder, llama.Model), strict=True))
_HF: dict[str, type[nn.Module]] = dict(zip(PARTS, (hf.Attention, hf.Decoder, hf.Model), strict=True))


def build(
    part: str,
    config: llama.LlamaConfig,
    *,
    source: str = "native",
    batch: int = 2,
    seq: int = 1024,
    seed: int = 0,
    device: str | torch.device = "cpu",
    mask: bool = False,
) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Makes a part of a Llama, and inputs for it; ``module(*inputs)`` is one float32 (batch, seq, hidden) tensor.

    Attention and decoder take float32 hidden states (batch, seq, hidden); the model takes int64 tokens (batch, seq)
    and, with ``mask``, an int64 padding mask (batch, seq), whose first row is half padding. Weights and inputs depend
    on ``seed`` alone, neither on ``source`` nor on ``device``, and the caller's random generators stay as they were.

    Raises UsageError for an unknown part or source, a size below 1, a mask for a part that takes none, and for source
    "hf" where transformers is not installed.
    """
    _check(part, source, batch, seq, mask)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        module = _NATIVE[part](config)
        _randomize_norms(module)
        inputs = _inputs(part, config, batch, seq, mask)
        if source == "hf":
            module = _as_hf(part, config, module)
    return module.to(device), tuple(tensor.to(device) for tensor in inputs)


def _check(part: str, source: str, batch: int, seq: int, mask: bool) -> None:
    if part not in PARTS:
        raise UsageError(f"part {part!r} is unknown: choose one of {', '.join(PARTS)}")
    if source not in SOURCES:
        raise UsageError(f"source {source!r} is unknown: choose one of {', '.join(SOURCES)}")
    if min(batch, seq) < 1:
        raise UsageError(f"batch={batch} and seq={seq} have to be 1 or more")
    if mask and part != "model":
        raise UsageError(f"part {part!r} takes no padding mask: leave mask out, or choose part 'model'")


def _randomize_norms(module: nn.Module) -> None:
    """Gives every norm its own gains: with all ones, a norm that is skipped or swapped for another would pass."""
    for child in module.modules():
        if isinstance(child, llama.RMSNorm):
            nn.init.uniform_(child.weight, 0.5, 1.5)


def _inputs(part: str, config: llama.LlamaConfig, batch: int, seq: int, mask: bool) -> tuple[torch.Tensor, ...]:
    if part != "model":
        return (torch.randn(batch, seq, config.hidden),)
    tokens = torch.randint(config.vocabulary, (batch, seq))
    return (tokens, _padding(batch, seq)) if mask else (tokens,)


def _padding(batch: int, seq: int) -> torch.Tensor:
    """Right padding: the first row is half padding, the last of several has none, those between are in between."""
    lengths = torch.linspace((seq + 1) // 2, seq, batch).long()
    return (torch.arange(seq) < lengths[:, None]).long()


def _as_hf(part: str, config: llama.LlamaConfig, native: nn.Module) -> nn.Module:
    module = _HF[part](config)
    module.get_submodule("hf").load_state_dict(native.state_dict())
    return module
