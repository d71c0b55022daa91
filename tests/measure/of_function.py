"""A function with the modules that it needs, as one module."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn


class Of(nn.Module):
    """A function as a module, with the submodules it needs."""

    def __init__(self, function: Callable[..., Tensor], **modules: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, *args: Tensor) -> Tensor:
        return self.function(*args, **dict(self.named_children()))
