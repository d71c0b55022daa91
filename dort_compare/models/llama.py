"""A Llama in plain torch, in three parts: attention, decoder (one layer) and model.

The parameters are named as in transformers and the floating point operations come in the same order, with the same
casts, so that with the same weights both give the same values and gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from dort_compare.errors import UsageError

ATTENTIONS = ("eager", "sdpa")


@dataclass(frozen=True)
class LlamaConfig:
    """The sizes of a Llama.

    ``kv_heads`` is the number of key and value heads, None for as many as ``heads``. ``attention`` is "eager" (matmul,
    float32 softmax, matmul) or "sdpa" (torch's fused kernel). Raises UsageError for sizes that do not fit together.
    """

    hidden: int = 512
    heads: int = 8
    kv_heads: int | None = None
    intermediate: int = 2000
    vocabulary: int = 4000
    layers: int = 1
    eps: float = 1e-6
    rope_theta: float = 10000.0
    attention: str = "eager"

    def __post_init__(self) -> None:
        self._check_positive()
        self._check_heads()
        if self.attention not in ATTENTIONS:
            raise UsageError(f"attention={self.attention!r} is unknown: choose one of {', '.join(ATTENTIONS)}")

    @property
    def head_size(self) -> int:
        """Width of one head."""
        return self.hidden // self.heads

    @property
    def group(self) -> int:
        """How many query heads share one key and value head."""
        return self.heads // (self.kv_heads or self.heads)

    def _check_positive(self) -> None:
        for name in ("hidden", "heads", "kv_heads", "intermediate", "vocabulary", "layers", "eps", "rope_theta"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise UsageError(f"{name}={value} is not positive: give a number above 0")

    def _check_heads(self) -> None:
        step = 2 * self.heads
        mend = f"take a multiple of {step}, such as hidden={-(-self.hidden // step) * step}"
        if self.hidden % self.heads:
            raise UsageError(f"hidden={self.hidden} is not divisible by heads={self.heads}: {mend}")
        if self.head_size % 2:
            raise UsageError(
                f"hidden={self.hidden} / heads={self.heads} gives heads of odd size {self.head_size}, "
                f"which rotary embedding cannot halve: {mend}"
            )
        if self.kv_heads and self.heads % self.kv_heads:
            divisors = ", ".join(str(n) for n in range(1, self.heads + 1) if self.heads % n == 0)
            raise UsageError(f"heads={self.heads} is not divisible by kv_heads={self.kv_heads}: take one of {divisors}")


class Context(NamedTuple):
    """What every layer needs to know about positions: rotary ``cos`` and ``sin``, each (seq, head size), and ``mask``.

    ``mask`` is what `attention_mask` returns.
    """

    cos: torch.Tensor
    sin: torch.Tensor
    mask: torch.Tensor | None


def attention_mask(hidden: torch.Tensor, padding: torch.Tensor | None, attention: str) -> torch.Tensor | None:
    """Says which positions may look at which, in the form that an implementation of attention takes.

    ``hidden`` is (batch, seq, hidden), ``padding`` None or (batch, seq) with 0 where a token is padding. The result is
    (batch or 1, 1, seq, seq): for "eager" in the dtype of ``hidden``, added to the scores (0, or the lowest number);
    for "sdpa" bool, or None where causality is all there is to say.
    """
    if attention == "sdpa" and padding is None:
        return None
    seq = hidden.shape[1]
    visible = torch.ones(seq, seq, dtype=torch.bool, device=hidden.device).tril()[None, None]
    if padding is not None:
        visible = visible & padding.bool()[:, None, None, :]
    if attention == "sdpa":
        return visible
    return torch.where(visible, hidden.new_zeros(()), torch.finfo(hidden.dtype).min)


class RMSNorm(nn.Module):
    """Divides by the root mean square over the last axis, in float32, and gives back the dtype of its input."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        exact = hidden.float()
        normalized = exact * torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * normalized.to(hidden.dtype)


class RotaryEmbedding(nn.Module):
    """Computes the `Context` of a sequence. It has no weights and nothing in its state dict."""

    inv_freq: torch.Tensor

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        exponent = torch.arange(0, config.head_size, 2, dtype=torch.float32) / config.head_size
        self.register_buffer("inv_freq", 1.0 / config.rope_theta**exponent, persistent=False)
        self.attention = config.attention

    def forward(self, hidden: torch.Tensor, padding: torch.Tensor | None = None) -> Context:
        """``hidden`` (batch, seq, hidden) lends its length, dtype and device; ``padding`` as in `attention_mask`."""
        positions = torch.arange(hidden.shape[1], device=hidden.device)
        angles = positions[:, None].float() * self.inv_freq.float()
        angles = torch.cat((angles, angles), dim=-1)
        mask = attention_mask(hidden, padding, self.attention)
        return Context(angles.cos().to(hidden.dtype), angles.sin().to(hidden.dtype), mask)


class Attention(nn.Module):
    """Causal self-attention with rotary positions and grouped key and value heads."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.config = config
        kv_size = config.hidden // config.group
        self.q_proj = nn.Linear(config.hidden, config.hidden, bias=False)
        self.k_proj = nn.Linear(config.hidden, kv_size, bias=False)
        self.v_proj = nn.Linear(config.hidden, kv_size, bias=False)
        self.o_proj = nn.Linear(config.hidden, config.hidden, bias=False)
        self.rotary_emb = RotaryEmbedding(config)

    def forward(self, hidden: torch.Tensor, context: Context | None = None) -> torch.Tensor:
        """Maps (batch, seq, hidden) to the same shape; without a ``context`` it computes its own, without padding."""
        cos, sin, mask = context or self.rotary_emb(hidden)
        query = _rotate(self._split(self.q_proj(hidden)), cos, sin)
        key = _rotate(self._split(self.k_proj(hidden)), cos, sin)
        value = self._split(self.v_proj(hidden))
        attend = _eager_attention if self.config.attention == "eager" else _sdpa_attention
        merged = attend(query, key, value, mask).transpose(1, 2).flatten(2)
        return self.o_proj(merged)

    def _split(self, projected: torch.Tensor) -> torch.Tensor:
        """(batch, seq, n * head size) -> (batch, n, seq, head size)."""
        return projected.unflatten(-1, (-1, self.config.head_size)).transpose(1, 2)


class MLP(nn.Module):
    """SwiGLU: an up projection gated by silu, and a down projection."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden, config.intermediate, bias=False)
        self.up_proj = nn.Linear(config.hidden, config.intermediate, bias=False)
        self.down_proj = nn.Linear(config.intermediate, config.hidden, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(hidden)) * self.up_proj(hidden))


class Decoder(nn.Module):
    """One decoder layer: attention and SwiGLU, each behind an RMSNorm and beside a residual."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.self_attn = Attention(config)
        self.mlp = MLP(config)
        self.input_layernorm = RMSNorm(config.hidden, config.eps)
        self.post_attention_layernorm = RMSNorm(config.hidden, config.eps)

    def forward(self, hidden: torch.Tensor, context: Context | None = None) -> torch.Tensor:
        """Maps (batch, seq, hidden) to the same shape; ``context`` as in `Attention`."""
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), context)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class Model(nn.Module):
    """Embedding, decoder layers and a final RMSNorm; without a language model head."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocabulary, config.hidden)
        self.layers = nn.ModuleList(Decoder(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.hidden, config.eps)
        self.rotary_emb = RotaryEmbedding(config)

    def forward(self, tokens: torch.Tensor, padding: torch.Tensor | None = None) -> torch.Tensor:
        """Maps int64 ``tokens`` (batch, seq) to (batch, seq, hidden); in int64 ``padding`` (batch, seq) 1 is real."""
        hidden = self.embed_tokens(tokens)
        context = self.rotary_emb(hidden, padding)
        for layer in self.layers:
            hidden = layer(hidden, context)
        return self.norm(hidden)


def _rotate(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turns the pairs (i, i + head size / 2) of (batch, n, seq, head size) by the angle of their position."""
    first, second = heads.chunk(2, dim=-1)
    return heads * cos + torch.cat((-second, first), dim=-1) * sin


def _share(heads: torch.Tensor, count: int) -> torch.Tensor:
    """Repeats each key or value head until there are ``count``."""
    batch, own, seq, size = heads.shape
    if own == count:
        return heads
    return heads[:, :, None].expand(batch, own, count // own, seq, size).flatten(1, 2)


def _eager_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    key, value = (_share(heads, query.shape[1]) for heads in (key, value))
    scores = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5
    if mask is not None:
        scores = scores + mask
    weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    return weights @ value


def _sdpa_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    """Leaves grouping to the kernel where there is no mask: with both, CUDA has no fused kernel."""
    grouped = mask is None and key.shape[1] < query.shape[1]
    if not grouped:
        key, value = (_share(heads, query.shape[1]) for heads in (key, value))
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=mask is None, enable_gqa=grouped)
