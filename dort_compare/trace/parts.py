"""An ONNX model in parts: any of its values, computed from any others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from functools import cached_property
from types import MappingProxyType

import onnx
import onnx_ir as ir
import torch
from onnx_ir.tensor_adapters import from_torch_dtype

from dort_compare.captures import reads_of, rename_made, rename_read
from dort_compare.errors import ExecutionError
from dort_compare.runtime.constants import LARGE, as_torch
from dort_compare.runtime.providers import Provider
from dort_compare.runtime.session import make_session
from dort_compare.trace.as_it_is import PART_AS_IT_IS
from dort_compare.trace.graph_run import EngineName
from dort_compare.trace.onnx_evaluator import EvaluatorSession
from dort_compare.trace.opaque import opaque_values
from dort_compare.trace.passages import Passages, Source

Known = Callable[[str], bool]

_MADE_HERE = "/made"
"""Tells what a part makes from the value of the same name that it is fed."""
_SHAPE = "/shape"
"""Tells the shape of a value from it."""


class Parts:
    """Runs parts of ``model``, each a small model of some of its nodes, as they stand: no optimization.

    A session costs little beside its nodes, so that many small ones cost little more than one of all nodes.
    """

    def __init__(
        self, model: onnx.ModelProto, providers: Sequence[Provider], device: torch.device, engine: EngineName = "ort"
    ) -> None:
        self.model = model
        self.engine = engine
        self.providers = providers
        self.device = device
        self.nodes = list(model.graph.node)
        self.producers = {name: i for i, node in enumerate(self.nodes) for name in node.output if name}
        self.reads = [tuple(reads_of(node)) for node in self.nodes]

    @cached_property
    def constants(self) -> Mapping[str, onnx.TensorProto]:
        """The initializers by name."""
        return {tensor.name: tensor for tensor in self.model.graph.initializer}

    @cached_property
    def _large(self) -> Mapping[str, torch.Tensor]:
        """Initializers that are better handed over than copied into every part."""
        large = (tensor for tensor in self.constants.values() if len(tensor.raw_data) >= LARGE)
        return {tensor.name: as_torch(ir.serde.deserialize_tensor(tensor)).to(self.device) for tensor in large}

    @cached_property
    def _made_here(self) -> str:
        return self._free(_MADE_HERE)

    @cached_property
    def _shape(self) -> str:
        return self._free(_SHAPE)

    def _free(self, mark: str) -> str:
        """``mark``, longer where a name of the model ends in it."""
        names = {*self.producers, *self.constants, *(name for reads in self.reads for name in reads)}
        while any(name.endswith(mark) for name in names):
            mark += "_"
        return mark

    @cached_property
    def untensored(self) -> frozenset[str]:
        """The names of values that are no tensors of numbers, or of such as torch is not handed."""
        return frozenset(opaque_values(self.model))

    def between(self, names: Iterable[str], known: Known) -> list[int]:
        """The nodes, in the order of the model, that compute ``names`` from what is known and from constants.

        A name that is known is computed all the same; only what is read on the way there stops at known values.
        """
        found: set[int] = set()
        waiting = [self.producers[name] for name in names]
        while waiting:
            i = waiting.pop()
            if i in found:
                continue
            found.add(i)
            reads = (name for name in self.reads[i] if not known(name))
            waiting.extend(self.producers[name] for name in reads if name in self.producers)
        return sorted(found)

    def root(self, name: str) -> str:
        """The value whose elements, in their order, the value ``name`` has: it may show them in another shape."""
        return self._passages.source(name).name

    @cached_property
    def _passages(self) -> Passages:
        return Passages(dict(enumerate(self.nodes)), self.untensored, {})

    def run(
        self,
        nodes: Sequence[int],
        fetch: Sequence[str],
        feeds: Mapping[str, torch.Tensor],
        apart: Mapping[int, Set[str]] = MappingProxyType({}),
        repeats: int = 1,
    ) -> list[dict[str, torch.Tensor]]:
        """What ``nodes`` compute of ``feeds`` (and constants), by the names in ``fetch``, as often as asked.

        A node is fed the names that ``apart`` holds for it also where another of the nodes makes them. Of a value that
        only shows another, ONNX Runtime tells the shape; the tensor shares the memory of the other's.

        Raises ExecutionError where ONNX Runtime refuses the nodes or fails.
        """
        if not fetch:
            return [{} for _ in range(repeats)]
        made = {name for i in nodes for name in self.nodes[i].output}
        inside = {name: name + self._made_here for i in nodes for name in made & apart.get(i, frozenset())}
        read = dict.fromkeys(n for i in nodes for n in self.reads[i] if n not in made or n in apart.get(i, ()))
        given, small = self._found(read, feeds)
        passages = Passages({i: self.nodes[i] for i in nodes}, self.untensored, apart)
        shown = _shown(fetch, passages, given)
        computed = dict.fromkeys(name for name in fetch if name not in shown)
        computed |= dict.fromkeys(source.name for source in shown.values() if not source.is_fed)
        shapes = [inside.get(name, name) + self._shape for name in shown]
        outputs = {inside.get(name, name): self.device for name in computed}
        model = self._model(nodes, given, small, [*outputs, *shapes])
        for i, node in zip(nodes, model.graph.node, strict=True):
            rename_made(node, inside)
            rename_read(node, {n: inside[n] for n in self.reads[i] if n in inside and n not in apart.get(i, ())})
        for name, shape in zip(shown, shapes, strict=True):
            model.graph.node.append(onnx.helper.make_node("Shape", [inside.get(name, name)], [shape]))
        is_ort = self.engine == "ort"
        session = make_session(model, PART_AS_IT_IS, self.providers) if is_ort else EvaluatorSession(model)
        wanted = outputs | dict.fromkeys(shapes, torch.device("cpu"))
        runs = (_named(list(computed), session.run(given, wanted), given, shown) for _ in range(repeats))
        return [{name: found[name] for name in fetch} for found in runs]

    def _found(
        self, read: Collection[str], feeds: Mapping[str, torch.Tensor]
    ) -> tuple[dict[str, torch.Tensor], list[onnx.TensorProto]]:
        """What is handed over of what a part reads, and the constants that it holds itself."""
        known = {**self._large, **feeds}
        given = {name: known[name] for name in read if name in known}
        missing = [name for name in read if name not in given and name not in self.constants]
        if missing:
            raise ExecutionError(f"no value for {', '.join(missing)}, which the ONNX model reads")
        return given, [self.constants[name] for name in read if name not in given]

    def _model(
        self,
        nodes: Sequence[int],
        given: Mapping[str, torch.Tensor],
        constants: Sequence[onnx.TensorProto],
        outputs: Iterable[str],
    ) -> onnx.ModelProto:
        model = onnx.ModelProto(ir_version=self.model.ir_version, opset_import=self.model.opset_import)
        model.functions.extend(self.model.functions)
        graph = model.graph
        graph.name = "part"
        graph.node.extend(self.nodes[i] for i in nodes)
        graph.input.extend(declared(name, tensor) for name, tensor in given.items())
        graph.initializer.extend(constants)
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
        return model


def _shown(names: Iterable[str], passages: Passages, given: Mapping[str, torch.Tensor]) -> dict[str, Source]:
    """Which of ``names`` only show what the nodes compute or are ``given``."""
    found = {name: passages.source(name) for name in names}
    return {name: at for name, at in found.items() if at.name != name and (at.name in given or not at.is_fed)}


def _named(
    computed: Sequence[str],
    values: Sequence[torch.Tensor],
    given: Mapping[str, torch.Tensor],
    shown: Mapping[str, Source],
) -> dict[str, torch.Tensor]:
    """By name, the ``values`` of what was ``computed`` and those that are ``shown``, whose shapes come after."""
    found = dict(zip(computed, values, strict=False))
    for (name, source), shape in zip(shown.items(), values[len(computed) :], strict=True):
        tensor = (given if source.is_fed else found)[source.name]
        found[name] = tensor.detach().reshape(shape.tolist())
    return found


def declared(name: str, tensor: torch.Tensor) -> onnx.ValueInfoProto:
    """A value of a model, of the dtype and shape of a tensor."""
    return onnx.helper.make_tensor_value_info(name, int(from_torch_dtype(tensor.dtype)), list(tensor.shape))
