"""A small member of each of many model types of diffusers, and what to call it with.

    python benchmarks/zoo.py --library diffusers --ways float32 bfloat16 float16 training --write docs/zoo-diffusers.md

Each type is built from a configuration written out in `benchmarks/diffusers_*.py`, with few layers, narrow, with
random weights, also where training would begin at zero, and compared with eager: in float32, in bfloat16 or float16
autocast, or in float32 in training mode, where dropout draws and batch norms count. A name is that of a class, or of a
class and, behind a dash, of what its configuration asks for. What ran in eager torch instead of ONNX Runtime is counted
beside. No fault is planted: a verdict other than *agree* is a false alarm, or a finding.
Where the verdict says that a model departs before ONNX, it is compiled once more with torch's own backend ``eager``,
and the page says how far that lies from the plain model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import diffusers
import torch
from diffusers_autoencoders import AUTOENCODERS
from diffusers_small import Small
from diffusers_transformers import TRANSFORMERS
from diffusers_unets import UNETS
from diffusers_video_transformers import VIDEO_TRANSFORMERS
from torch import nn
from zoo_members import NotMade, draw_zeros

KINDS: Mapping[str, Small] = UNETS | AUTOENCODERS | TRANSFORMERS | VIDEO_TRANSFORMERS
"""By name, what a small member is built with and called with."""


def build(kind: str) -> tuple[nn.Module, dict[str, Any]]:
    """A member in evaluation mode with random weights, and keyword arguments that it runs on.

    Raises NotMade where the installed version has no such class.
    """
    small, name = KINDS[kind], kind.split("-", maxsplit=1)[0]
    if not hasattr(diffusers, name):
        raise NotMade(f"diffusers {diffusers.__version__} has no {name}")
    torch.manual_seed(0)
    config = {name: value() if callable(value) else value for name, value in small.config.items()}
    model: nn.Module = getattr(diffusers, name)(**config).float().eval()
    draw_zeros(model)
    generator = torch.Generator().manual_seed(1)
    arguments = {name: _drawn(value, generator) for name, value in small.arguments.items()}
    with torch.no_grad():
        model(**arguments)
    return model, arguments


def kinds() -> list[str]:
    """Every type that has a configuration here."""
    return sorted(KINDS)


def _drawn(value: Any, generator: torch.Generator) -> Any:
    if isinstance(value, dict):
        return {name: _drawn(each, generator) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_drawn(each, generator) for each in value)
    return value(generator) if callable(value) else value
