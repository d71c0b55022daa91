"""Inputs that hold still as constants of the session, where ONNX Runtime folds and prepacks them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import torch

from dort_compare.writes import count_fused_steps, may_be_statistics

RunTensors = Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]
MakeRun = Callable[[Mapping[str, torch.Tensor]], RunTensors]
"""Makes a function of the inputs that are not among the constants given, in their order."""

CHANGES = 2
"""An input that has changed more often, such as a running mean, is no constant any more."""


@dataclass(frozen=True)
class _Held:
    """A tensor as it was: another one in the same memory, which is not given away while it is held.

    ``content`` is a copy of one that torch may write without counting it.
    """

    tensor: torch.Tensor
    version: int
    content: torch.Tensor | None

    @classmethod
    def of(cls, tensor: torch.Tensor) -> _Held:
        held = tensor.detach()
        return cls(held, tensor._version, held.clone() if may_be_statistics(tensor) else None)

    def is_still(self, tensor: torch.Tensor) -> bool:
        """Whether ``tensor`` shows the same elements, and nothing has been written since."""
        return (
            tensor.data_ptr() == self.tensor.data_ptr()
            and tensor._version == self.version
            and tensor.shape == self.tensor.shape
            and tensor.stride() == self.tensor.stride()
            and (self.content is None or torch.equal(tensor, self.content))
        )


@dataclass(frozen=True)
class _Made:
    """A session: what its constants are, by place, the places of its inputs, and how it runs."""

    held: Mapping[int, _Held]
    moving: Sequence[int]
    run: RunTensors

    def changed(self, tensors: Sequence[torch.Tensor]) -> list[int]:
        """The places of constants that are not what ``tensors`` hold."""
        return [i for i, held in self.held.items() if not held.is_still(tensors[i])]


class Frozen:
    """A function of all ``inputs`` of a model, of which those that are ``still`` become constants.

    The constants are made again where one is another tensor than before, has been given other memory, or has been
    written in place, but for what is written through ``tensor.data``, numpy or a storage, which torch does not count.
    Inference tensors, whose writes are not counted either, remain inputs, and so do statistics on a GPU, whose elements
    would have to be waited for.
    Threads may call it at once: one of them makes what all then run.
    """

    def __init__(self, inputs: Sequence[str], still: Collection[str], make_run: MakeRun) -> None:
        count_fused_steps()
        self._inputs = list(inputs)
        self._still = [i for i, name in enumerate(inputs) if name in still]
        self._make_run = make_run
        self._changes: Counter[int] = Counter()
        self._lock = threading.Lock()
        self._made: _Made | None = None

    def __call__(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        made = self._made
        if made is None or made.changed(tensors):
            made = self._made_for(tensors)
        return made.run([tensors[i] for i in made.moving])

    def _made_for(self, tensors: Sequence[torch.Tensor]) -> _Made:
        with self._lock:
            made = self._made
            changed = made.changed(tensors) if made else []
            if made is None or changed:
                self._changes.update(changed)
                made = self._made = self._make(tensors)
            return made

    def _make(self, tensors: Sequence[torch.Tensor]) -> _Made:
        able = [i for i in self._still if _can_be_held(tensors[i]) and self._changes[i] <= CHANGES]
        held = {i: _Held.of(tensors[i]) for i in able}
        moving = [i for i in range(len(self._inputs)) if i not in held]
        return _Made(held, moving, self._make_run({self._inputs[i]: each.tensor for i, each in held.items()}))


def _can_be_held(tensor: torch.Tensor) -> bool:
    return not tensor.is_inference() and (tensor.device.type == "cpu" or not may_be_statistics(tensor))
