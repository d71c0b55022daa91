"""What is compared: a module and its inputs, out of what a factory returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from dort_compare.cli.inputs import Spec, is_spec
from dort_compare.errors import UsageError, one_line

_FORMS = "return a torch.nn.Module, (module, inputs) or (module, args, kwargs)"


@dataclass
class CalledModule:
    """A module with its arguments. Inputs that are only described are drawn from ``seed``, one after the other; floats
    among them ask for their gradient where ``backward``."""

    module: nn.Module
    seed: int = 0
    backward: bool = False
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._generator = torch.Generator().manual_seed(self.seed)

    def give(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Takes these as arguments; a description with a name is a keyword argument. Raises UsageError for one that is
        given twice."""
        for each in args:
            name = Spec.of(each).name if is_spec(each) else None
            if name is None:
                self.args += (self._drawn(each),)
            elif name in self.kwargs or name in kwargs:
                raise UsageError(f"the input {name} is given twice")
            else:
                self.kwargs[name] = self._drawn(each)
        self.kwargs |= {str(name): self._drawn(value) for name, value in kwargs.items()}

    def to(self, device: str) -> None:
        """Moves the module and its arguments. Raises UsageError where torch refuses, as for what holds no values."""
        try:
            self.module.to(device)
            self.args, self.kwargs = tree_map(lambda leaf: _moved(leaf, device), (self.args, self.kwargs))
        except (RuntimeError, NotImplementedError) as problem:
            raise UsageError(f"the model and its inputs cannot be moved to {device}: {one_line(problem)}") from None

    def _drawn(self, value: Any) -> Any:
        return tree_map(
            lambda leaf: Spec.of(leaf).draw(self._generator, self.backward) if is_spec(leaf) else leaf, value
        )


def called_module(made: Any, inputs: Sequence[str], *, seed: int, backward: bool, what: str) -> CalledModule:
    """The module that ``what`` made; ``inputs``, where there are any, in the place of those that came with it.

    Raises UsageError for what is no module with inputs.
    """
    module, *given = made if isinstance(made, (tuple, list)) and made else (made,)
    if not isinstance(module, nn.Module) or len(given) > 2:
        raise UsageError(f"{what} returned {_described(made)}; {_FORMS}")
    if len(given) == 2 and not isinstance(given[1], Mapping):
        raise UsageError(f"{what} returned {_described(made)}, whose third is no dict of keyword arguments; {_FORMS}")
    called = CalledModule(module, seed, backward)
    if inputs:
        for text in inputs:
            Spec.of(text)
        called.give(inputs, {})
    elif not given:
        raise UsageError(
            f"{what} is a module without inputs: return them with it, or describe them: --input float32[2,16]"
        )
    elif isinstance(given[0], Mapping):
        called.give((), {**given[0], **(given[1] if len(given) == 2 else {})})
    else:
        args = given[0] if isinstance(given[0], (tuple, list)) else (given[0],)
        called.give(args, given[1] if len(given) == 2 else {})
    return called


def _moved(leaf: Any, device: str) -> Any:
    """On ``device``, a leaf of autograd there where it asks for its gradient here."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return leaf.detach().to(device).requires_grad_(leaf.requires_grad)


def _described(made: Any) -> str:
    if isinstance(made, (tuple, list)):
        return f"({', '.join(type(each).__name__ for each in made)})"
    return f"{'an' if type(made).__name__[:1] in 'aeiouAEIOU' else 'a'} {type(made).__name__}"
