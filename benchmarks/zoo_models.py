"""A small member of each model type of transformers, made by shrinking its own configuration, and what to call it with.

Configurations share names, not all of them: a type whose shrunk configuration does not fit together is not made.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from transformers import AutoModel, PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES
from zoo_members import NotMade

MOST_PARAMETERS = 60_000_000
TOKENS = 16

_AT_MOST: Mapping[int, str] = {
    2: "num_key_value_heads n_head_kv num_kv_heads num_experts_per_tok experts_per_token moe_topk",
    4: "num_attention_heads n_head num_heads n_heads encoder_attention_heads decoder_attention_heads attention_heads "
    "encoder_num_attention_heads decoder_num_attention_heads num_experts num_local_experts n_routed_experts "
    "moe_num_experts",
    1: "n_group topk_group num_expert_group",
    8: "qk_rope_head_dim",
    12: "num_queries",
    16: "head_dim q_lora_rank kv_lora_rank qk_nope_head_dim v_head_dim",
    64: "hidden_size d_model n_embd dim embed_dim embedding_size hidden_dim decoder_hidden_size encoder_hidden_size "
    "projection_dim out_hidden_size text_embed_dim feature_size mask_feature_size fpn_feature_size "
    "decoder_hidden_dim encoder_hidden_dim model_dim width pooler_hidden_size conv_dim mask_dim "
    "intermediate_size moe_intermediate_size moe_shared_expert_intermediate_size shared_expert_intermediate_size "
    "encoder_ffn_dim decoder_ffn_dim ffn_dim ffn_hidden_size d_ff n_inner mlp_dim dim_feedforward image_size",
    128: "max_position_embeddings n_positions n_ctx max_source_positions max_target_positions",
    300: "vocab_size",
}
_LIMITS = {name: limit for limit, names in _AT_MOST.items() for name in names.split()}
_HEADS = frozenset(["head_dim", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "v_head_dim", "qk_rope_head_dim"])
_WIDTHS, _WIDE = ("hidden_size", "n_embd", "d_model", "dim"), 512
_DEPTHS = ("layers", "layer", "depth", "num_blocks", "num_hidden_groups")
_SPECIAL = ("pad", "bos", "eos", "decoder_start", "sep", "cls")
_BOTH = frozenset(
    [
        *("align", "altclip", "blip", "bridgetower", "chinese_clip", "clip", "clipseg", "flava", "git", "groupvit"),
        *("grounding-dino", "metaclip_2", "mm-grounding-dino", "owlv2", "owlvit", "siglip", "siglip2", "vilt"),
        "x_clip",
    ]
)
"""Types that want text and an image."""


def kinds() -> list[str]:
    """Every model type that ``AutoModel`` knows."""
    return sorted(MODEL_MAPPING_NAMES)


def build(kind: str) -> tuple[nn.Module, dict[str, Any]]:
    """A member in evaluation mode with random weights, and keyword arguments that it runs on.

    Raises NotMade where no small configuration fits together or the inputs are of a kind of their own.
    """
    reasons = []
    for with_heads in (True, False):
        try:
            return _built(kind, with_heads)
        except Exception as error:  # noqa: BLE001  (whatever the type makes of a configuration that nobody wrote)
            reasons.append(f"{type(error).__name__}: {error}" if not isinstance(error, NotMade) else str(error))
    raise NotMade(reasons[0])


def _built(kind: str, with_heads: bool) -> tuple[nn.Module, dict[str, Any]]:
    config = shrunk(CONFIG_MAPPING[kind](), with_heads)
    with torch.device("meta"):
        parameters = sum(each.numel() for each in AutoModel.from_config(config).parameters())
    if parameters > MOST_PARAMETERS:
        raise NotMade(f"{parameters / 1e6:.0f} million parameters")
    torch.manual_seed(0)
    model = AutoModel.from_config(config).float().eval()
    arguments = _arguments(model, config)
    with torch.no_grad():
        model(**arguments)
    return model, arguments


def shrunk(config: PreTrainedConfig, with_heads: bool) -> PreTrainedConfig:
    """``config``, and those in it, made small in place; the sizes of heads stay unless ``with_heads``."""
    given = dict(vars(config))
    for name, value in given.items():
        if isinstance(value, PreTrainedConfig):
            shrunk(value, with_heads)
        elif not name.startswith("_") and (size := _small(name, value, with_heads)) is not None:
            setattr(config, name, size)
    if given.get("num_key_value_heads", 0) == given.get("num_attention_heads"):
        config.num_key_value_heads = config.num_attention_heads
    _keep_kinds_of_layers(config)
    for name in _SPECIAL:
        token = getattr(config, f"{name}_token_id", None)
        if isinstance(token, int) and token >= (getattr(config, "vocab_size", None) or _LIMITS["vocab_size"]):
            setattr(config, f"{name}_token_id", 1)
    return config


def _small(name: str, value: Any, with_heads: bool) -> Any:
    """The size that takes the place of ``value``; None where it stays."""
    if isinstance(value, int) and not isinstance(value, bool):
        return _small_number(name, value, with_heads)
    if isinstance(value, (list, tuple)) and value and all(isinstance(each, int) for each in value):
        if name.endswith(("depths", "num_layers", "num_hidden_layers")):
            return [1] * len(value)
        if name == "image_size":
            return [_LIMITS[name]] * len(value)
    return None


def _small_number(name: str, value: int, with_heads: bool) -> int | None:
    if not with_heads and name in _HEADS:
        return None
    if name in _LIMITS:
        is_wide = name in _WIDTHS and not with_heads
        return min(value, _WIDE if is_wide else _LIMITS[name])
    return 2 if name.endswith(_DEPTHS) and 2 < value < 200 else None


def _keep_kinds_of_layers(config: PreTrainedConfig) -> None:
    """One layer of each kind that a configuration lists, at least two in all."""
    listed = vars(config).get("layer_types")
    if listed and isinstance(getattr(config, "num_hidden_layers", None), int):
        found = list(dict.fromkeys(listed))
        config.layer_types = found if len(found) > 1 else found * 2
        config.num_hidden_layers = len(config.layer_types)


def _arguments(model: nn.Module, config: PreTrainedConfig) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(1)
    taken = inspect.signature(model.forward).parameters
    main = str(model.main_input_name)
    tokens = getattr(getattr(config, "text_config", None) or config, "vocab_size", None) or 100
    found: dict[str, Any] = {}
    for name in ("input_ids", "decoder_input_ids"):
        if name in taken and (name == "input_ids" or config.is_encoder_decoder):
            found[name] = torch.randint(3, tokens, (2, TOKENS), generator=generator)
    if main not in found or config.model_type in _BOTH:
        name = "pixel_values" if config.model_type in _BOTH else main
        found[name] = _signal(name, config, generator)
    if "use_cache" in taken:
        found["use_cache"] = False
    return found


def _signal(name: str, config: PreTrainedConfig, generator: torch.Generator) -> torch.Tensor:
    """Noise in the shape of an image, of a film or of sound."""
    if name.startswith("pixel_values"):
        image = getattr(config, "vision_config", None) or config
        size = getattr(image, "image_size", None) or _LIMITS["image_size"]
        sizes = [size, size] if isinstance(size, int) else list(size)[:2]
        channels = getattr(image, "num_channels", None) or 3
        frames = getattr(config, "num_frames", None) or getattr(config, "frames_per_clip", None)
        return torch.randn([2, *([frames] if frames else []), channels, *sizes], generator=generator)
    if name == "input_values":
        return torch.randn(2, 4000, generator=generator)
    if name == "input_features":
        bins = getattr(config, "num_mel_bins", None) or getattr(config, "input_feat_per_channel", None) or 80
        whisper = "max_source_positions" in vars(config)
        shape = (2, bins, 2 * config.max_source_positions) if whisper else (2, 96, bins)
        return torch.randn(shape, generator=generator)
    raise NotMade(f"an input {name}")
