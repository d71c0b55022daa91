"""An ONNX model in parts: any of its values, computed from any others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence, Set
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

import onnx
import onnx_ir as ir
import onnxruntime as ort
import torch
from onnx_ir.tensor_adapters import from_torch_dtype

from dort_compare.errors import ExecutionError
from dort_compare.runtime.constants import LARGE, as_torch
from dort_compare.runtime.providers import Provider, SessionSettings, once
from dort_compare.runtime.session import make_session
from dort_compare.trace.captures import reads_of, rename_made, rename_read
from dort_compare.trace.graph_run import EngineName
from dort_compare.trace.passages import shown_by
from dort_compare.trace.reference import ReferenceSession

Known = Callable[[str], bool]

_SEQUENCES = {"SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceMap", "SplitToSequence"}

_MADE_HERE = "/made"
"""Tells what a part makes from the value of the same name that it is fed."""
_SHAPE = "/shape"
"""Tells the shape of a value from it."""
Apart = Mapping[int, Set[str]]
"""By the place of a node, the names that it is fed also where another node makes them."""


class _Shown(NamedTuple):
    """A value that stands behind others, computed in a part or fed to it."""

    root: str
    is_fed: bool


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
    def untensored(self) -> frozenset[str]:
        """The names of values that are no tensors."""
        typed = (*self.model.graph.value_info, *self.model.graph.output)
        named = {v.name for v in typed if v.HasField("type") and not v.type.HasField("tensor_type")}
        made = {name for node in self.nodes if node.op_type in _SEQUENCES for name in node.output}
        return frozenset(named | made)

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
        return self._behind(name, range(len(self.nodes)), {}).root

    def run(
        self,
        nodes: Sequence[int],
        fetch: Sequence[str],
        feeds: Mapping[str, torch.Tensor],
        apart: Apart = MappingProxyType({}),
        repeats: int = 1,
    ) -> list[dict[str, torch.Tensor]]:
        """What ``nodes`` compute of ``feeds`` (and constants), by the names in ``fetch``, as often as asked.

        A node is fed the names that ``apart`` holds for it also where another of the nodes makes them. Of what only
        shows another value ONNX Runtime tells the shape, and it shares that one's memory.

        Raises ExecutionError where ONNX Runtime refuses the nodes or fails.
        """
        if not fetch:
            return [{} for _ in range(repeats)]
        made = {name for i in nodes for name in self.nodes[i].output}
        renamed = {name: name + _MADE_HERE for i in nodes for name in made & apart.get(i, frozenset())}
        read = list(dict.fromkeys(n for i in nodes for n in self.reads[i] if n not in made or n in apart.get(i, ())))
        given = {name: self._given(name, feeds) for name in read if name in feeds or name in self._large}
        small = [self.constants[name] for name in read if name not in given and name in self.constants]
        missing = [name for name in read if name not in given and name not in self.constants]
        if missing:
            raise ExecutionError(f"no value for {', '.join(missing)}, which the ONNX model reads")
        shown = self._shown(fetch, nodes, given, apart)
        computed = dict.fromkeys([name for name in fetch if name not in shown])
        computed |= dict.fromkeys(at.root for at in shown.values() if not at.is_fed)
        outputs = {renamed.get(name, name): self.device for name in computed}
        outputs |= {renamed.get(name, name) + _SHAPE: torch.device("cpu") for name in shown}
        model = self._model(nodes, given, small, outputs)
        for i, node in zip(nodes, model.graph.node, strict=True):
            rename_made(node, renamed)
            rename_read(node, {n: renamed[n] for n in self.reads[i] if n in renamed and n not in apart.get(i, ())})
        for name in (renamed.get(name, name) for name in shown):
            model.graph.node.append(onnx.helper.make_node("Shape", [name], [name + _SHAPE]))
        is_ort = self.engine == "ort"
        session = make_session(model, self._settings, self.providers) if is_ort else ReferenceSession(model)
        runs = (dict(zip([*computed, *shown], session.run(given, outputs), strict=True)) for _ in range(repeats))
        return [{name: _value(name, found, given, shown) for name in fetch} for found in runs]

    def _shown(
        self, names: Iterable[str], nodes: Sequence[int], given: Collection[str], apart: Apart
    ) -> dict[str, _Shown]:
        """Which of ``names`` only show a value that ``nodes`` compute or are ``given``."""
        here = frozenset(nodes)
        found = {name: self._behind(name, here, apart) for name in names}
        return {n: at for n, at in found.items() if at.root != n and (at.root in given or not at.is_fed)}

    def _behind(self, name: str, nodes: Container[int], apart: Apart) -> _Shown:
        """What ``nodes`` show as ``name``."""
        last = len(self.nodes)  # a node reads what earlier ones make, or the model is none
        while last > (i := self.producers.get(name, -1)) in nodes and name not in self.untensored:
            source, last = shown_by(self.nodes[i]), i
            if source is None:
                break
            name = source
            if source in apart.get(i, ()):
                return _Shown(name, is_fed=True)
        return _Shown(name, is_fed=i not in nodes)

    @cached_property
    def _settings(self) -> SessionSettings:
        """No optimization, and nothing kept or waiting for a next run: an arena would stay whole for one value of it
        that is kept, threads that spin would take the time of torch's."""
        return SessionSettings(
            session_options={
                "graph_optimization_level": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
                "log_severity_level": 4,
                **once(),
            }
        )

    def _given(self, name: str, feeds: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return feeds[name] if name in feeds else self._large[name]

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
        graph.input.extend(_declared(name, tensor) for name, tensor in given.items())
        graph.initializer.extend(constants)
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
        return model


def _value(
    name: str, found: Mapping[str, torch.Tensor], given: Mapping[str, torch.Tensor], shown: Mapping[str, _Shown]
) -> torch.Tensor:
    """What a run ``found`` of a value, the shape of one that is only ``shown``, as a tensor."""
    if name not in shown:
        return found[name]
    root, is_fed = shown[name]
    return (given if is_fed else found)[root].detach().reshape(found[name].tolist())


def _declared(name: str, tensor: torch.Tensor) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, int(from_torch_dtype(tensor.dtype)), list(tensor.shape))
