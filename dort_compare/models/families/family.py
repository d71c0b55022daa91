"""A model with what to call it with, and how transformers is asked for one."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from torch import nn

from dort_compare.errors import UsageError


class Member(NamedTuple):
    """``model(*args, **kwargs)`` runs it."""

    model: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}  # noqa: RUF012  (a default of a tuple, never written to)


def pretrained(auto: str, model_type: str, **sizes: Any) -> nn.Module:
    """The model of transformers that its class ``auto`` makes for a model type of the given sizes, for inference.

    Raises UsageError where transformers is not installed.
    """
    try:
        transformers = import_module("transformers")
    except ModuleNotFoundError as error:
        raise UsageError(f"{model_type} needs transformers: pip install 'dort-compare[hf]'") from error
    config = transformers.AutoConfig.for_model(model_type, **sizes)
    config.use_cache = False
    return getattr(transformers, auto).from_config(config).eval()
