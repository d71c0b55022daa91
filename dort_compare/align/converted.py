"""Models converted to a coarser dtype than ours: their values are compared in ours, and say in what they are held."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from functools import cached_property

import onnx
import torch
from onnx import helper

from dort_compare import provenance
from dort_compare.align.inserted import Change, inserted, there_and_back
from dort_compare.align.provenance import values_of_fx_nodes
from dort_compare.align.tensor_types import Type, in_dtype, torch_dtype, types_of
from dort_compare.captures import rename_read
from dort_compare.dtypes import coarsest, dtype_name, dtype_of_onnx, is_coarser
from dort_compare.protos import replace_nodes
from dort_compare.trace.casts import COMPUTE_NOTHING
from dort_compare.trace.parts import Parts

Types = Mapping[str, Type]
Makers = Mapping[str, onnx.NodeProto]

_MARK = "held"


def is_held_coarser(theirs: Type | None, ours: Type | None) -> bool:
    """Whether the first is a floating dtype that rounds more than the second."""
    one, other = torch_dtype(theirs), torch_dtype(ours)
    return one is not None and other is not None and is_coarser(one, other)


def is_converted(model: onnx.ModelProto, theirs: Types, ours: Types) -> bool:
    """Whether ``model`` computes in coarser dtypes than ours: more than one of the values ``ours``, or all of them.

    What a value is computed in is the dtype that the node gives which computes it: a cast computes nothing, nor does
    what only moves elements. So a value that is rounded on its way to the next, and one op among many that somebody has
    put between casts, make no converted model; nor does what is as coarse in ours (`as_computed`).
    """
    makers = _makers(model)
    computed: dict[str, bool] = {}
    for name, wanted in ours.items():
        made = _computed(name, makers)
        if made in makers and (dtype := torch_dtype(theirs.get(made))) is not None and dtype.is_floating_point:
            computed[made] = computed.get(made, False) or is_held_coarser(theirs[made], wanted)
    coarse = sum(computed.values())
    return coarse > 1 or 0 < coarse == len(computed)


def as_computed(model: onnx.ModelProto, types: Types) -> dict[str, Type]:
    """The ``types`` of values of ``model``, each in the coarsest dtype that it has on its way from what computes it."""
    makers = _makers(model)
    return {name: _coarsest_of(name, makers, types) for name in types}


def _coarsest_of(name: str, makers: Makers, types: Types) -> Type:
    found = types[name]
    for shown in _shown(name, makers):
        if is_held_coarser(types.get(shown), found):
            found = in_dtype(found, types[shown].elem_type)
    return found


def _makers(model: onnx.ModelProto) -> Makers:
    return {output: node for node in model.graph.node for output in node.output if output}


def _computed(name: str, makers: Makers) -> str:
    """The value that a node computes, or an input or constant, of which ``name`` has the elements."""
    *_, computed = _shown(name, makers)
    return computed


def _shown(name: str, makers: Makers, by: Container[str] = COMPUTE_NOTHING) -> Iterator[str]:
    """``name`` and, one by one, the values whose elements it has ``by`` those operators, each once: a model that goes
    in a circle is refused later."""
    passed: set[str] = set()
    while name not in passed:
        yield name
        passed.add(name)
        if name in makers and makers[name].op_type in by:
            name = next(iter(makers[name].input), name)


def compare_in_ours(model: onnx.ModelProto, expected: Types, inputs: Types, theirs: Types) -> dict[str, Type]:
    """Casts what ``model`` takes and what of it stands for FX nodes to our dtypes, and back for its nodes.

    ``expected`` gives the types of FX nodes, ``inputs`` those of our graph's. Returns the types of all values, which
    are no longer ``theirs``. Values say in their metadata in what they are held.
    """
    _cast_inputs(model, inputs)
    changes = [*_held_coarser(model, expected, theirs), *_cast_up(model, expected, theirs)]
    there_and_back(model, changes, _cast, _MARK)
    types = {**theirs, **types_of(model)}
    _NodeDtypes(model, types).mark(expected)
    return types


def _cast(read: str, made: str, wanted: Type) -> onnx.NodeProto:
    return helper.make_node("Cast", [read], [made], f"{made}/Cast", to=wanted.elem_type)


def _cast_inputs(model: onnx.ModelProto, ours: Types) -> None:
    casts, names = [], {}
    for value in model.graph.input:
        given, wanted = value.type.tensor_type, ours.get(value.name)
        if wanted is not None and is_held_coarser(given, wanted):
            names[value.name] = f"{value.name}/{_MARK}"
            casts.append(inserted(_cast(value.name, names[value.name], given)))
            model.graph.value_info.add(name=names[value.name]).type.tensor_type.CopyFrom(given)
            given.elem_type = wanted.elem_type
    nodes = [*casts, *model.graph.node]
    for node in model.graph.node:
        rename_read(node, names)
    replace_nodes(model.graph, nodes)


def _held_coarser(model: onnx.ModelProto, expected: Types, theirs: Types) -> Iterator[Change]:
    for fx_node, value in _one_each(model).items():
        given, wanted = theirs.get(value), expected.get(fx_node)
        if given is not None and wanted is not None and is_held_coarser(given, wanted):
            yield Change(value, given, in_dtype(given, wanted.elem_type))


def _cast_up(model: onnx.ModelProto, expected: Types, theirs: Types) -> Iterator[Change]:
    """Values cast to our dtypes in the end, as outputs are, where other nodes read what is cast."""
    stand, returned = _one_each(model), {value.name for value in model.graph.output}
    makers = _makers(model)
    for fx_node, value in stand.items():
        node = makers[value]
        source = next(iter(node.input), "") if node.op_type == "Cast" else ""
        if source not in makers or source in returned or source in stand.values():
            continue
        if is_held_coarser(theirs.get(source), expected.get(fx_node)) and not is_held_coarser(
            theirs.get(value), expected.get(fx_node)
        ):
            yield Change(value, theirs[source], theirs[value], source)


def _one_each(model: onnx.ModelProto) -> dict[str, str]:
    """By FX node the value that stands for it, each value once."""
    by_value = {value.name: fx_node for fx_node, value in values_of_fx_nodes(model).items()}
    return {fx_node: value for value, fx_node in by_value.items()}


class _NodeDtypes:
    """In what dtypes the nodes of a model compute."""

    def __init__(self, model: onnx.ModelProto, types: Types) -> None:
        self._model = model
        self._types = types
        self._stands = values_of_fx_nodes(model)
        self._makers = _makers(model)
        self._parts = Parts(model, [], torch.device("cpu"))

    def mark(self, expected: Types) -> None:
        """Writes beside each value the coarser dtype that it is held in: the coarsest that the nodes which make it of
        other such values read and give, but for casts, or that it has itself."""
        declared = {value.name: value for value in (*self._model.graph.value_info, *self._model.graph.output)}
        for fx_node, value in _one_each(self._model).items():
            wanted, held = torch_dtype(expected.get(fx_node)), coarsest(self._dtypes(value))
            floating = wanted if wanted is not None and wanted.is_floating_point else torch.float32
            if held is not None and is_coarser(held, floating):
                declared[value].metadata_props.add(key=provenance.HELD_IN, value=dtype_name(held))

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(value.name for value in self._stands.values())

    @cached_property
    def _constants(self) -> Mapping[str, torch.dtype | None]:
        tensors = self._model.graph.initializer
        return {tensor.name: dtype_of_onnx(tensor.data_type) for tensor in tensors}

    def _dtypes(self, value: str) -> Iterator[torch.dtype]:
        """Those that the nodes of a value compute in, and its own before it is cast to ours."""
        for i in self._parts.between([value], lambda name: name != value and name in self._known):
            if self._parts.nodes[i].op_type != "Cast":
                for name in (*self._parts.reads[i], *self._parts.nodes[i].output):
                    yield from self._of(name)
        *casts, _ = _shown(value, self._makers, {"Cast"})
        for cast in casts:
            yield from self._of(cast)

    def _of(self, name: str) -> Iterator[torch.dtype]:
        found = self._constants.get(name) or torch_dtype(self._types.get(name))
        if found is not None:
            yield found
