"""From a graph to its program, by way of the models that another process has kept."""

from __future__ import annotations

import functools
import logging
from dataclasses import dataclass, field, replace
from itertools import chain

import onnx_ir as ir
import onnxruntime as ort
from torch import fx

from dort_compare.backends.building import Building, Built, Reasons, sign
from dort_compare.cache import Entry, Store
from dort_compare.cache.key import key_of
from dort_compare.cache.store import LARGEST
from dort_compare.cache.words import UnkeyedError, sizes_of
from dort_compare.fx_graph import graphs_within
from dort_compare.lowering.lowered import Lowered
from dort_compare.lowering.registry import registered
from dort_compare.provenance import target_name
from dort_compare.rewrites import rewritten
from dort_compare.runtime.binding import devices_of
from dort_compare.runtime.constants import nbytes
from dort_compare.runtime.kernels import with_kernels
from dort_compare.runtime.providers import Provider
from dort_compare.signature import Signature

_LOG = logging.getLogger("dort_compare.cache")


@dataclass(frozen=True)
class Cached(Building):
    """Keeps models as ONNX Runtime is given them: lowered, with a kernel for every node, rewritten.

    What depends on the process is made anew, of the FX graph at hand: the signature, and what the model says of the
    compilation.
    """

    store: Store
    identities: dict[fx.GraphModule, tuple[str, Signature] | None] = field(default_factory=dict)

    def __call__(self, graph_module: fx.GraphModule) -> Built:
        identity = self._identity(graph_module)
        if identity is None:
            return super().__call__(graph_module)
        return self._found(*identity) or self._made(graph_module, identity[0])

    def refused(self, graph_module: fx.GraphModule) -> Reasons:
        identity = self._identity(graph_module)
        entry = self.store.read(identity[0]) if identity else None
        if entry is None or not entry.refused.keys() <= {node.name for node in graph_module.graph.nodes}:
            return {}
        return entry.refused

    def refuse(self, graph_module: fx.GraphModule, reasons: Reasons) -> None:
        if identity := self._identity(graph_module):
            self.store.write(Entry(identity[0], self.phase, _calls(graph_module), refused=reasons))

    def _found(self, key: str, signature: Signature) -> Built | None:
        entry = self.store.read(key)
        if entry is None:
            return None
        try:
            lowered = Lowered(entry.model_for(signature), signature, self.phase)
            sign(lowered)
            built = self._ready.program_of(lowered)
        except Exception as problem:  # noqa: BLE001  (whatever an entry does not do is done without it)
            _LOG.debug("%s graph %s is made again: %s", self.phase, key, problem)
            return None
        _LOG.debug("%s graph %s found", self.phase, key)
        return built

    def _made(self, graph_module: fx.GraphModule, key: str) -> Built:
        sizes = sizes_of(graph_module)
        lowered = self.lowered(graph_module)
        built = self._ready.program_of(replace(lowered, model=self._prepared(lowered.model)))
        model = built[0].model
        size = nbytes(model.graph.initializers.values())
        if sizes_of(graph_module) != sizes:
            _LOG.debug("%s graph is not cached: lowering it added guards on its sizes", self.phase)
        elif size > LARGEST:
            _LOG.debug("%s graph is not cached: constants of %d MiB", self.phase, size >> 20)
        else:
            _LOG.debug("%s graph %s made", self.phase, key)
            proto = ir.to_proto(model)
            self.store.write(Entry(key, self.phase, _calls(graph_module), proto.SerializeToString()))
        return built

    @functools.cached_property
    def _ready(self) -> Building:
        """For models that are rewritten already."""
        return Building(replace(self.options, rewrites=False), self.example_inputs, self.phase, self.still, self.stages)

    def _prepared(self, model: ir.Model) -> ir.Model:
        providers = self._providers()
        with self.stages("kernels"):
            model = with_kernels(model, providers)
        with self.stages("rewrites"):
            return rewritten(model, providers) if self.options.rewrites else model

    def _providers(self) -> list[Provider]:
        return self.options.session.resolved_providers(devices_of(self.example_inputs))

    # The key.

    def _identity(self, graph_module: fx.GraphModule) -> tuple[str, Signature] | None:
        """The key, and the signature; None for a graph that cannot be cached, of which the reason is logged."""
        if graph_module not in self.identities:
            self.identities[graph_module] = None
            try:
                _refuse_foreign(graph_module)
                signature = Signature.of(graph_module)
                key = key_of(graph_module, signature, self.phase, self._chosen())
                self.identities[graph_module] = key, signature
            except Exception as problem:  # noqa: BLE001  (a graph that has no key is compiled without)
                _LOG.debug("%s graph is not cached: %s", self.phase, problem)
        return self.identities[graph_module]

    def _chosen(self) -> tuple[object, ...]:
        options = self.options
        if isinstance(options.session_options, ort.SessionOptions):
            raise UnkeyedError("session_options is an object; give a mapping")
        session = sorted((name, repr(value)) for name, value in options.session_options.items())
        return options.exporter, options.opset, bool(options.rewrites), repr(self._providers()), tuple(session)


def _calls(graph_module: fx.GraphModule) -> int:
    return sum(node.op == "call_function" for node in graph_module.graph.nodes)


def _refuse_foreign(graph_module: fx.GraphModule) -> None:
    """Refuses a graph that lowerings from elsewhere take part in, whose source is not in the key."""
    lowerings = registered()
    for node in chain.from_iterable(module.graph.nodes for module in graphs_within(graph_module)):
        function = lowerings.get(node.target) if node.op == "call_function" else None
        if function is not None and not function.__module__.startswith("dort_compare."):
            raise UnkeyedError(f"{target_name(node)} has a lowering in {function.__module__}")
