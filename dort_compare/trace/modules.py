"""A whole module, compiled or not: its outputs, and the gradients of a scalar made from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from dort_compare.errors import NothingToDifferentiateError, UsageError
from dort_compare.trace.attributes import attribute_tensors, attributes_kept
from dort_compare.trace.call import Call, given
from dort_compare.trace.outcome import Outcome
from dort_compare.trace.refused_modules import refusals_explained, refuse_foreign, refuse_gradients_by_wrappers
from dort_compare.trace.restored import gradient_leaves, gradients_kept, is_unchanged, restored
from dort_compare.trace.returned_tensors import named_tensors, to_dense
from dort_compare.trace.seeded import seeded
from dort_compare.trace.wrapped import plain_tensors

Buffers = Callable[[], Iterable[tuple[str, torch.Tensor]]]


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
    refuse_foreign(_state(function, call), "a parameter, buffer or argument")
    if call.backward:
        refuse_gradients_by_wrappers(function)
    arguments = given(parameters, call)
    held = {**arguments, **dict(plain_tensors(buffers()))}
    written = [*_written(function, call), *held.values()]
    sources = {name: each for name, each in arguments.items() if each.requires_grad}
    kept = gradients_kept(sources.values())
    with refusals_explained(), seeded(), attributes_kept(function), kept, restored(written) as before:
        precision = torch.autocast(call.device.type, call.autocast) if call.autocast else nullcontext()
        with precision, torch.set_grad_enabled(call.backward):
            result = function(*call.args, **call.kwargs)
            outputs = named_tensors(result)
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
        if tensor is None or (tensor is own and (content is None or is_unchanged(tensor.detach(), content))):
            continue
        found[name] = to_dense(tensor.detach()).clone()
    return found


def _loss(result: Any, outputs: Mapping[str, torch.Tensor], call: Call) -> torch.Tensor:
    loss = call.loss(result) if call.loss else _projection(outputs)
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or loss.is_complex():
        raise UsageError("the loss has to be a real tensor of one element")
    return loss


def _gradients(loss: torch.Tensor, sources: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    if torch.is_inference_mode_enabled():
        raise UsageError("backward=True within torch.inference_mode(), which keeps no gradients; call it outside")
    leaves = gradient_leaves(sources.values())
    for source in leaves:
        source.grad = None
    found: Sequence[torch.Tensor | None] = [None] * len(sources)
    if sources and loss.requires_grad:
        found = torch.autograd.grad(loss, list(sources.values()), allow_unused=True)
    gathered = {id(source): source.grad for source in leaves}
    gradients = {}
    for (name, source), gradient in zip(sources.items(), found, strict=True):
        parts = [to_dense(part) for part in (gradient, gathered.get(id(source))) if part is not None]
        if parts:
            gradients[name] = sum(parts[1:], start=parts[0])
    if not gradients:
        raise NothingToDifferentiateError(
            "backward=True, but no output depends on a parameter or argument that requires grad"
        )
    return gradients


def _state(function: Callable[..., Any], call: Call) -> list[torch.Tensor]:
    """Parameters and buffers, or what they are made of, and arguments."""
    named = (*function.named_parameters(), *function.named_buffers()) if isinstance(function, nn.Module) else ()
    return [*(tensor for _, tensor in plain_tensors(named)), *call.tensors]


def _written(function: Callable[..., Any], call: Call) -> list[torch.Tensor]:
    """What a call may write in place: parameters, buffers, other attributes and arguments."""
    attributes = plain_tensors(("", tensor) for tensor in attribute_tensors(function))
    return [*_state(function, call), *(tensor for _, tensor in attributes)]


def _kept(outputs: Mapping[str, torch.Tensor], written: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """The outputs, with a copy of those that share memory with a tensor that will be restored."""
    shared = {tensor.untyped_storage().data_ptr() for tensor in written if torch._C._has_storage(tensor)}
    kept = {name: tensor.detach() for name, tensor in outputs.items()}
    return {name: t.clone() if t.untyped_storage().data_ptr() in shared else t for name, t in kept.items()}


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
