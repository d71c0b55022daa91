"""A whole module, compiled or not: its outputs, and the gradients of a scalar made from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from dort_compare.errors import NothingToDifferentiateError, UsageError
from dort_compare.scalars import as_tensor
from dort_compare.trace.attributes import attribute_tensors, attributes_kept
from dort_compare.trace.seeded import seeded
from dort_compare.trace.trees import named_leaves
from dort_compare.trace.wrapped import is_wrapper, plain_tensors

Loss = Callable[[Any], torch.Tensor]
Buffers = Callable[[], Iterable[tuple[str, torch.Tensor]]]
_REFUSALS = {
    "use_reentrant=True": "checkpoint(..., use_reentrant=True) is not compared; give use_reentrant=False",
    "Inference tensors cannot be saved": "what was made in torch.inference_mode() cannot be differentiated; give "
    "a clone of it, made outside",
    "not currently support double backward": "torch.compile cannot differentiate a gradient that the model takes by "
    "torch.autograd.grad(..., create_graph=True); take it by torch.func.grad",
    "view was created inside a custom Function": "torch.compile cannot differentiate a model that writes in place what "
    "a compiled graph returned a view of; let it write a clone",
    "Can't detach views in-place": "the model writes what requires gradients into an argument or buffer that is a view "
    "of another tensor; give a clone of it",
}
"""What to do about what torch says of a call or its backward pass."""


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


@dataclass(frozen=True)
class Call:
    """How a module is called: its arguments, whether gradients are asked for, and under which autocast."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    backward: bool = False
    loss: Loss | None = None
    autocast: torch.dtype | None = None

    @property
    def device(self) -> torch.device:
        tensors = (leaf for leaf in pytree.tree_leaves((self.args, self.kwargs)) if isinstance(leaf, torch.Tensor))
        return next((tensor.device for tensor in tensors), torch.device("cpu"))


def run_module(
    function: Callable[..., Any], parameters: Mapping[str, torch.Tensor], call: Call, buffers: Buffers = tuple
) -> Outcome:
    """Calls ``function`` and, for a backward call, differentiates the loss by parameters and arguments.

    ``buffers`` gives those that there are by name, as the method ``named_buffers`` of a module does.

    The loss is ``call.loss(result)``; without one, every floating or complex output is multiplied with a fixed random
    tensor and summed, so that errors of opposite sign do not cancel. What is sparse is made dense. What backward passes
    of the model's own add to ``.grad`` meanwhile counts, too. Every ``.grad`` is as before afterwards, the random state
    stays, and parameters, buffers, other tensors in attributes and arguments that the call writes in place get their
    content back, and are leaves of autograd again. Attributes that it sets are as before.

    Raises UsageError where a backward call has nothing to differentiate, differentiates what torch.compile cannot
    (gradients that the model takes itself), or by a parameter that is made of other tensors, writes what requires
    gradients into a view, or computes activations again in torch's old way, which yields gradients to
    ``Tensor.backward`` alone.
    """
    _refuse_foreign(_state(function, call), "a parameter, buffer or argument")
    if call.backward:
        _refuse_gradients_by_wrappers(function)
    arguments = given(parameters, call)
    held = {**arguments, **dict(plain_tensors(buffers()))}
    written = [*_written(function, call), *held.values()]
    sources = {name: each for name, each in arguments.items() if each.requires_grad}
    kept = _gradients_kept(sources.values())
    with _mended(), seeded(), attributes_kept(function), kept, restored(written) as before:
        precision = torch.autocast(call.device.type, call.autocast) if call.autocast else nullcontext()
        with precision, torch.set_grad_enabled(call.backward):
            result = function(*call.args, **call.kwargs)
            outputs = _named_tensors(result)
            loss = _loss(result, outputs, call) if call.backward else None
        gradients = _gradients(loss, sources) if loss is not None else {}
        updates = _updates(held, {**arguments, **dict(plain_tensors(buffers()))}, before)
        return Outcome(_kept(outputs, _written(function, call)), gradients, updates, held)


def _updates(
    held: Mapping[str, torch.Tensor], now: Mapping[str, torch.Tensor], before: Mapping[int, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Copies of what is ``now`` under the names of ``held``, where that is another tensor or not what it was before."""
    found = {}
    for name, own in held.items():
        tensor, content = now.get(name), before.get(id(own))
        if tensor is None or (tensor is own and (content is None or _is_unchanged(tensor.detach(), content))):
            continue
        found[name] = _dense(tensor.detach()).clone()
    return found


def _is_unchanged(tensor: torch.Tensor, before: torch.Tensor) -> bool:
    """Whether every element is what it was before, NaN too."""
    if torch.equal(tensor, before):
        return True
    is_alike = tensor.shape == before.shape and tensor.dtype == before.dtype
    return is_alike and bool(((tensor == before) | (tensor.isnan() & before.isnan())).all())


def _loss(result: Any, outputs: Mapping[str, torch.Tensor], call: Call) -> torch.Tensor:
    loss = call.loss(result) if call.loss else _projection(outputs)
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or loss.is_complex():
        raise UsageError("the loss has to be a real tensor of one element")
    return loss


def _gradients(loss: torch.Tensor, sources: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    if torch.is_inference_mode_enabled():
        raise UsageError("backward=True within torch.inference_mode(), which keeps no gradients; call it outside")
    gathering = _gathering(sources.values())
    for source in gathering:
        source.grad = None
    found: Sequence[torch.Tensor | None] = [None] * len(sources)
    if sources and loss.requires_grad:
        found = torch.autograd.grad(loss, list(sources.values()), allow_unused=True)
    gathered = {id(source): source.grad for source in gathering}
    gradients = {}
    for (name, source), gradient in zip(sources.items(), found, strict=True):
        parts = [_dense(part) for part in (gradient, gathered.get(id(source))) if part is not None]
        if parts:
            gradients[name] = sum(parts[1:], start=parts[0])
    if not gradients:
        raise NothingToDifferentiateError(
            "backward=True, but no output depends on a parameter or argument that requires grad"
        )
    return gradients


@contextmanager
def _gradients_kept(sources: Iterable[torch.Tensor]) -> Iterator[None]:
    """Within it ``.grad`` may be added to or set; after it each is the one that it was, of the same content."""
    before = [(source, source.grad) for source in _gathering(sources)]
    for source, gradient in before:
        source.grad = None if gradient is None else gradient.clone()
    try:
        yield
    finally:
        for source, gradient in before:
            source.grad = gradient


def _gathering(sources: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors, each once, that gather gradients in ``.grad``, and may be given the one that they have again."""
    leaves = [source for source in {id(source): source for source in sources}.values() if source.is_leaf]
    return [
        leaf
        for leaf in leaves
        if leaf.grad is None
        or (leaf.shape, leaf.dtype, leaf.device) == (leaf.grad.shape, leaf.grad.dtype, leaf.grad.device)
    ]


@contextmanager
def _mended() -> Iterator[None]:
    """Says in one line what to do about what torch refuses."""
    try:
        yield
    except RuntimeError as problem:
        mend = next((mend for said, mend in _REFUSALS.items() if said in str(problem)), None)
        if mend is None:
            raise
        raise UsageError(mend) from None


def _state(function: Callable[..., Any], call: Call) -> list[torch.Tensor]:
    """Parameters and buffers, or what they are made of, and arguments."""
    named = (*function.named_parameters(), *function.named_buffers()) if isinstance(function, nn.Module) else ()
    leaves = pytree.tree_leaves((tuple(call.args), dict(call.kwargs)))
    return [tensor for _, tensor in plain_tensors(named)] + [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _refuse_foreign(tensors: Iterable[torch.Tensor], what: str) -> None:
    """Raises UsageError for a tensor that is made of others, or holds no values."""
    for tensor in tensors:
        if is_lazy(tensor):
            raise UsageError(f"{what} is not initialized; call the model once before, as lazy modules ask for")
        if tensor.is_meta:
            raise UsageError(f"{what} is on the device meta, which holds no values; give it some elsewhere")
        if tensor.is_nested or _has_no_memory(tensor):
            kind = type(tensor).__qualname__
            name = "nested tensor" if tensor.is_nested else f"{kind}, a tensor subclass without memory"
            raise UsageError(f"{what} is a {name}, which is not compared; have the model take and return plain tensors")


def _refuse_gradients_by_wrappers(function: Callable[..., Any]) -> None:
    for name, parameter in function.named_parameters() if isinstance(function, nn.Module) else ():
        if parameter.requires_grad and is_wrapper(parameter):
            raise UsageError(
                f"the gradient by {name}, a {type(parameter).__qualname__}, which is made of other tensors, is not "
                "compared; freeze it with requires_grad_(False), or compare without backward"
            )


def _has_no_memory(tensor: torch.Tensor) -> bool:
    return type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ and not tensor.data_ptr()


def _written(function: Callable[..., Any], call: Call) -> list[torch.Tensor]:
    """What a call may write in place: parameters, buffers, other attributes and arguments."""
    attributes = plain_tensors(("", tensor) for tensor in attribute_tensors(function))
    return [*_state(function, call), *(tensor for _, tensor in attributes)]


@contextmanager
def restored(written: Iterable[torch.Tensor]) -> Iterator[Mapping[int, torch.Tensor]]:
    """Within it tensors that have memory may be written in place, and their ``data`` set; after it they have their
    memory and its content back.

    Gives copies of that by ``id`` of the tensor.
    """
    distinct = {id(tensor): tensor for tensor in written}.values()
    tensors = [each for each in distinct if torch._C._has_storage(each) and not (each.is_meta or each.is_inference())]
    before = [(tensor, tensor.detach(), tensor.detach().clone()) for tensor in tensors]
    leaves = [tensor for tensor in tensors if tensor.is_leaf]
    try:
        yield {id(tensor): content for tensor, _, content in before}
    finally:
        for tensor in leaves:
            if not tensor.is_leaf:  # what was written into it required gradients
                tensor.detach_()
        for tensor, memory, content in before:
            if not tensor.is_set_to(memory):
                tensor.data = memory
            if not _is_unchanged(memory, content):  # batch norm writes without counting up the version
                memory.copy_(content)


def _kept(outputs: Mapping[str, torch.Tensor], written: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """The outputs, with a copy of those that share memory with a tensor that will be restored."""
    shared = {tensor.untyped_storage().data_ptr() for tensor in written if torch._C._has_storage(tensor)}
    kept = {name: tensor.detach() for name, tensor in outputs.items()}
    return {name: t.clone() if t.untyped_storage().data_ptr() in shared else t for name, t in kept.items()}


def _named_tensors(result: Any) -> dict[str, torch.Tensor]:
    named = {name or "output": _dense(tensor) for name, tensor in _tensors(result)}
    _refuse_foreign(named.values(), "an output")
    if not named:
        raise UsageError(
            f"the model returned a {type(result).__name__}, in which no tensor is found; have it return tensors, in "
            "tuples, lists, dicts or dataclasses if need be"
        )
    return named


def _tensors(result: Any, within: tuple[int, ...] = ()) -> Iterator[tuple[str, torch.Tensor]]:
    """By path, also those in dataclasses that pytree does not know, and numbers as tensors of no dimension; ``within``
    are the ids of the dataclasses around it."""
    for name, leaf in named_leaves(result):
        if isinstance(leaf, torch.Tensor):
            yield name, leaf
        elif (number := _as_tensor(leaf)) is not None:
            yield name, number
        elif is_dataclass(leaf) and not isinstance(leaf, type) and id(leaf) not in within:
            for each in fields(leaf):
                inner = _tensors(getattr(leaf, each.name, None), (*within, id(leaf)))
                yield from ((f"{name}.{each.name}{rest}", tensor) for rest, tensor in inner)


def _as_tensor(leaf: Any) -> torch.Tensor | None:
    """A number of Python's or numpy's as a tensor of no dimension, an integer beyond int64 in float64; else None."""
    number = leaf.item() if isinstance(leaf, np.generic) else leaf
    if isinstance(number, int) and not -(2**63) <= number < 2**63:
        number = float(number)
    if isinstance(number, complex):
        return torch.tensor(number, dtype=torch.complex128, device="cpu")
    return as_tensor(number) if isinstance(number, (bool, int, float)) else None


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if torch._C._has_storage(tensor) else tensor.to_dense()


def _projection(outputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The outputs' product with directions that bfloat16 holds exactly: every precision gets the same tangents.

    Each has a direction of its own: what goes back from p and 1 - p would cancel.
    """
    total = torch.zeros((), device="cpu")
    for place, each in enumerate(outputs.values()):
        output = torch.view_as_real(each.resolve_conj()) if each.is_complex() else each
        if output.is_floating_point() and output.requires_grad:
            generator = torch.Generator().manual_seed(place)
            direction = torch.randn(output.shape, generator=generator, device="cpu").bfloat16().to(output.device)
            wide = torch.promote_types(output.dtype, torch.float32) if output.dtype.itemsize > 1 else torch.float32
            total = (output.to(wide) * direction).sum() + total.to(output.device)
    return total


def given(parameters: Mapping[str, torch.Tensor], call: Call) -> dict[str, torch.Tensor]:
    """The parameters, or what they are made of, and the tensors among the arguments, by the names that their gradients
    have."""
    leaves = (*named_leaves(tuple(call.args)), *named_leaves(dict(call.kwargs)))
    arguments = {f"argument{path}": leaf for path, leaf in leaves}
    named = {**parameters, **arguments}.items()
    return dict(plain_tensors((name, value) for name, value in named if isinstance(value, torch.Tensor)))
