"""The calls of a model's modules that Python makes, as they happen."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

from dort_compare.trace.trees import named_leaves

Kind = Literal["input", "output", "gradient"]


@dataclass(frozen=True)
class ModuleCall:
    """A call of a module: its path ("" for the model itself), and how many calls of it came before."""

    module: str
    number: int


@dataclass(frozen=True)
class Place:
    """A tensor that a module took or returned, or the gradient by one that it returned: the call, and the path in the
    arguments or in the result ("" for a result that is a tensor)."""

    kind: Kind
    call: ModuleCall
    leaf: str


@dataclass(frozen=True)
class Like:
    """A module that a compiled graph knows by its ``path``, and by the ``id`` and path of a module like it."""

    module: int
    path_of_module: str
    path: str


Identity = int | Like
"""The ``id`` of a module object, or what is known instead."""


class ModuleCalls:
    """Names the calls of a model's modules in one execution; a module under several paths goes by the first.

    ``active`` lists the calls that Python is in, the innermost last. What Python does not call is counted by whoever
    sees it begin.
    """

    def __init__(self, model: nn.Module) -> None:
        self.names = {id(module): name for name, module in model.named_modules()}
        self._paths = {path: id(module) for path, module in model.named_modules(remove_duplicate=False)}
        self.active: list[ModuleCall] = []
        self.begun: Counter[str] = Counter()

    def name(self, module: Identity) -> str | None:
        """The name of a module of the model, None for others."""
        if isinstance(module, int):
            return self.names.get(module)
        path = _beside(self.names.get(module.module, ""), module.path_of_module, module.path)
        return self.names.get(self._paths.get(path, 0))

    def begin(self, module: str) -> ModuleCall:
        """The next call of the module."""
        self.begun[module] += 1
        return ModuleCall(module, self.begun[module] - 1)

    @contextmanager
    def watched(
        self, leave: Callable[[ModuleCall, Any], None], enter: Callable[[ModuleCall, Any], None] | None = None
    ) -> Iterator[None]:
        """Within it every call that Python makes is counted; ``enter`` gets it with its positional arguments, ``leave``
        with its result.

        The hooks are torch's global ones: a module that asks whether it has hooks itself computes as without. What is
        called in a backward pass, to compute activations again, is no call of its own.
        """

        with _hooked(_Watcher(self, leave, enter)):
            yield


@dataclass(frozen=True, eq=False)
class _Watcher:
    """Who is told of the calls of modules: counted by ``calls``, begun and ended."""

    calls: ModuleCalls
    leave: Callable[[ModuleCall, Any], None]
    enter: Callable[[ModuleCall, Any], None] | None

    def entered(self, module: nn.Module, args: Any) -> None:
        name = self.calls.names.get(id(module))
        if name is not None:
            self.calls.active.append(self.calls.begin(name))
            if self.enter is not None:
                self.enter(self.calls.active[-1], args)

    def left(self, module: nn.Module, result: Any) -> None:
        name = self.calls.names.get(id(module))
        while name is not None and self.calls.active:  # calls above it have ended in an exception
            call = self.calls.active.pop()
            if call.module == name:
                self.leave(call, result)
                return


_WATCHERS: list[_Watcher] = []
"""As global as torch's hooks, which are the same in every run: dynamo compiles anew for others, with other numbers."""


@torch.compiler.disable
def _entered(module: nn.Module, args: Any) -> None:
    if not _in_backward():
        for watcher in _WATCHERS:
            watcher.entered(module, args)


@torch.compiler.disable
def _left(module: nn.Module, _args: Any, result: Any) -> None:
    if not _in_backward():
        for watcher in _WATCHERS:
            watcher.left(module, result)


@functools.cache
def _hooks() -> Mapping[RemovableHandle, Callable[..., None]]:
    """The hooks, by handles that know torch's tables of hooks, and under which number each stands there in all runs."""
    hooks = {register_module_forward_pre_hook(_entered): _entered, register_module_forward_hook(_left): _left}
    for handle in hooks:
        handle.remove()
    return hooks


@contextmanager
def _hooked(watcher: _Watcher) -> Iterator[None]:
    """Within it torch's global hooks tell ``watcher``."""
    config, ours = torch._dynamo.config, _hooks()
    _WATCHERS.append(watcher)
    try:
        for handle, hook in ours.items():
            hooks = handle.hooks_dict_ref()
            assert hooks is not None
            hooks[handle.id] = hook
        with config.patch(ignore_logger_methods={*config.ignore_logger_methods, *ours.values()}):
            yield  # what torch.cond traces is no call
    finally:
        _WATCHERS.remove(watcher)
        if not _WATCHERS:
            for handle in ours:
                handle.remove()


def _beside(name: str, path: str, other: str) -> str:
    """The name at the path ``other`` where ``name`` is at ``path``: a graph may name modules from another one on."""
    names, parts = name.split("."), path.split(".")
    while names and parts and names[-1] == parts[-1]:
        names.pop()
        parts.pop()
    above = "".join(f"{part}." for part in parts)
    return ".".join([*names, other.removeprefix(above)])


def leaves(result: Any) -> dict[str, torch.Tensor]:
    """The tensors of a result, or of arguments, by their path in it, "" for a result that is a tensor.

    Nested tensors, which have no shape, are left out, and what has no memory: sparse tensors, and what modules take and
    return within ``vmap``, ``jvp`` and ``grad``, where torch wraps whatever is detached.
    """
    tensors = ((path, leaf) for path, leaf in named_leaves(result) if isinstance(leaf, torch.Tensor))
    return {path: tensor for path, tensor in tensors if not tensor.is_nested and torch._C._has_storage(tensor.detach())}


def on_gradient(tensor: torch.Tensor, see: Callable[[torch.Tensor], None]) -> None:
    """Has ``see`` called with the gradient of the loss by ``tensor``, where a backward pass computes one.

    Of a view whose base was written in place torch (2.13) makes the node of autograd only when that is asked for: a
    hook that is registered before ends the process.
    """

    def hook(gradient: torch.Tensor | None) -> None:
        if gradient is not None:  # the loss may leave out some of the outputs that one node of autograd makes
            see(gradient.detach())

    if tensor.requires_grad and torch.is_grad_enabled():
        _ = tensor.grad_fn
        tensor.register_hook(hook)


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1
