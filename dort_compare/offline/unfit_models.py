"""What a model has to have in common with the run of a dump that it is to stand in for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import onnx
import onnx_ir as ir
import torch
from onnx_ir.tensor_adapters import from_torch_dtype, to_torch_dtype
from torch import fx

from dort_compare.align.graph_outputs import places
from dort_compare.align.paired_inputs import sizes_fit
from dort_compare.align.provenance import values_of_fx_nodes
from dort_compare.align.tensor_types import sizes
from dort_compare.errors import DumpError
from dort_compare.runtime.program import Argument
from dort_compare.scalars import as_fed


def refuse_made_twice(model: onnx.ModelProto, path: Path) -> None:
    """Raises DumpError where several nodes make a value of one name."""
    made = Counter(name for node in model.graph.node for name in node.output if name)
    twice = [name for name, times in made.items() if times > 1]
    if twice:
        raise DumpError(f"{path} makes {', '.join(twice[:5])} more than once: give each result a name of its own")


def refuse_unlike(own: onnx.ModelProto, model: onnx.ModelProto, path: Path) -> None:
    """Raises DumpError where neither names nor the places of outputs say what the values of ``model``, adopted in the
    place of ``own``, stand for."""
    ours, theirs = ([value.name for value in each.graph.output] for each in (own, model))
    if model.graph.node and len(ours) != len(theirs) and values_of_fx_nodes(own) and not values_of_fx_nodes(model):
        raise DumpError(
            f"{path} shares no name of a value with the graph, and its number of outputs is {len(theirs)}, not "
            f"{len(ours)}, so nothing can be compared: let it return {', '.join(ours[:5])}, by name or in this order"
        )


def refuse_other_inputs(model: onnx.ModelProto, given: Mapping[str, Argument], path: Path) -> None:
    """Raises DumpError where the model reads what the run has no value for, or one of another dtype or shape."""
    constants = {tensor.name for tensor in model.graph.initializer}
    read = [value for value in model.graph.input if value.name not in constants]
    missing = [value for value in read if value.name not in given]
    if missing:
        names = {value.name for value in read}
        fitting = [name for name in given if name not in names and _fits(missing[0], as_fed(given[name]))]
        hint = f"; {missing[0].name} may be {' or '.join(fitting[:5])}" if fitting else ""
        raise DumpError(
            f"{path} reads {', '.join(value.name for value in missing[:5])}, for which the dump holds no value: give "
            f"its inputs the names that the graph's have{hint}"
        )
    for value in read:
        dtype = to_torch_dtype(ir.DataType(value.type.tensor_type.elem_type))
        recorded = as_fed(given[value.name]).dtype
        if dtype != recorded:
            raise DumpError(
                f"{path} reads {value.name} as {dtype}, the dump holds {recorded}: convert it inside the model"
            )
        _refuse_other_shape(value, tuple(as_fed(given[value.name]).shape), path)


def refuse_other_order(graph: fx.GraphModule, model: onnx.ModelProto, path: Path) -> None:
    """Raises DumpError where the model returns the outputs of the graph in another order."""
    at = places(graph, model)
    if list(at.values()) != sorted(at.values()):
        theirs, ours = sorted(at, key=at.__getitem__), list(at)
        first = next(i for i, (one, other) in enumerate(zip(theirs, ours, strict=True)) if one != other)
        raise DumpError(
            f"{path} returns {', '.join(theirs[first : first + 5])} in this order, the graph "
            f"{', '.join(ours[first : first + 5])}: who calls a model by position "
            "takes one for the other; give it that order"
        )


def _refuse_other_shape(value: onnx.ValueInfoProto, recorded: tuple[int, ...], path: Path) -> None:
    if not _has_shape(value, recorded):
        declared = "x".join("?" if n is None else str(n) for n in sizes(value.type.tensor_type)) or "a number"
        raise DumpError(
            f"{path} declares {value.name} as {declared}, the dump holds {'x'.join(map(str, recorded)) or 'a number'}: "
            "give it that shape"
        )


def _fits(value: onnx.ValueInfoProto, tensor: torch.Tensor) -> bool:
    """Whether an input that is declared so takes a tensor."""
    element = value.type.tensor_type.elem_type
    return int(from_torch_dtype(tensor.dtype)) == element and _has_shape(value, tuple(tensor.shape))


def _has_shape(value: onnx.ValueInfoProto, shape: tuple[int, ...]) -> bool:
    declared = value.type.tensor_type
    return not declared.HasField("shape") or sizes_fit(sizes(declared), shape)
