"""Small members of the model families that people compile, each with random weights and inputs to call it with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch

from dort_compare.errors import UsageError
from dort_compare.models.families import experts, recurrent, speech, text, vision
from dort_compare.models.families.family import Member

__all__ = ["FAMILIES", "build_family"]

FAMILIES: Mapping[str, Callable[[], Member]] = MappingProxyType(
    {**text.MEMBERS, **vision.MEMBERS, **speech.MEMBERS, **recurrent.MEMBERS, **experts.MEMBERS}
)
"""From a family's name to the function that makes its member."""


def build_family(name: str, seed: int = 0) -> Member:
    """Makes the member of a family; weights and inputs depend on ``seed`` alone, the caller's generators stay.

    Raises UsageError for an unknown family, and for one of transformers where that is not installed.
    """
    if name not in FAMILIES:
        raise UsageError(f"family {name!r} is unknown: choose one of {', '.join(FAMILIES)}")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return FAMILIES[name]()
