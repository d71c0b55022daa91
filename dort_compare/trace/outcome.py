"""What a call of a module gives, and leaves behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class Outcome:
    """Tensors by name: outputs by their path in the result, numbers among them, gradients by parameter name or argument
    position.

    ``updates`` hold the new content of parameters, buffers and arguments that the call has changed; ``before`` are all
    of them, which have their own content again.
    """

    outputs: Mapping[str, torch.Tensor]
    gradients: Mapping[str, torch.Tensor] = field(default_factory=dict)
    updates: Mapping[str, torch.Tensor] = field(default_factory=dict)
    before: Mapping[str, torch.Tensor] = field(default_factory=dict)

    def left(self, names: Iterable[str]) -> dict[str, torch.Tensor]:
        """What the call has left in those that are named, changed or not."""
        after = {**self.before, **self.updates}
        return {name: after[name] for name in names if name in after}
