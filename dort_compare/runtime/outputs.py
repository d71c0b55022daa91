"""What a graph returns, made of its arguments and of what the session has computed."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import torch

from dort_compare.signature import GraphOutput, Scalar, Signature

Argument = torch.Tensor | int | float | bool
Result = torch.Tensor | Scalar


class Outputs:
    """Returns the outputs of a graph: tensors, numbers and None as torch would, views of arguments as views of them.

    Raises CheckError, or what torch raises, where a condition that the graph checks does not hold.
    """

    def __init__(self, signature: Signature) -> None:
        names = [*(graph_input.name for graph_input in signature.inputs), *signature.computed]
        places = {name: i for i, name in enumerate(names)}
        self._checks = [(places[check.name], check) for check in signature.checks]
        self._finished = [
            (places[name], output)
            for name, output in signature.computed.items()
            if output.dtype is None or output.dtype.is_complex or output.order is not None
        ]
        shows = Counter(map(_computed_for, signature.outputs))
        self._made = [_maker(output, places, shows) for output in signature.outputs]

    def __call__(
        self, arguments: Sequence[Argument], computed: Sequence[torch.Tensor], *, checked: bool = True
    ) -> list[Result]:
        values: list[Result] = [*arguments, *computed]
        for place, output in self._finished:
            values[place] = _as_traced(values[place], output)
        for place, check in self._checks if checked else ():
            check.verify(values[place])
        return [make(values) for make in self._made]


def _computed_for(output: GraphOutput) -> str | None:
    """The computed value whose memory an output is, or is a view of."""
    if output.dtype is None:
        return None
    return output.view.base.name if output.view and output.view.base else output.name


def _maker(
    output: GraphOutput, places: Mapping[str, int], shows: Mapping[str | None, int]
) -> Callable[[Sequence[Result]], Result]:
    """Makes an output of the values at their places; ``shows`` counts the outputs, saved activations among them, that
    show a computed value.

    A view that alone shows it is returned as a plain tensor: autograd forbids to write in views made inside of a custom
    function, and AOTAutograd knows nothing of those that a decomposition makes, as that of ``stack``.
    """
    if output.name is None:
        return lambda _: output.constant
    if output.view is None:
        return operator.itemgetter(places[output.name])
    make, operands = output.view.make, [places[name] for name in output.view.operands]
    if output.dtype is not None and output.view.base is not None and shows[output.view.base.name] == 1:
        return lambda values: _unviewed(make(*(values[place] for place in operands)))
    return lambda values: make(*(values[place] for place in operands))


def _unviewed(view: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten._unsafe_view.default(view, view.shape)


def _as_traced(value: Result, output: GraphOutput) -> Result:
    """A computed value in the memory layout that torch traced, complex where its parts were computed, a size as a
    number."""
    assert isinstance(value, torch.Tensor)
    if output.dtype is None:
        return value.item()
    if output.dtype.is_complex:
        value = torch.view_as_complex(value)
    if output.order is None:
        return value
    return torch.empty_permuted(value.shape, output.order, dtype=value.dtype, device=value.device).copy_(value)
