"""The backend that only runs: ``torch.compile(model, backend="dort")``, successor of PyTorch's ``onnxrt``."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import fx

from dort_compare import provenance
from dort_compare.backends import partition
from dort_compare.backends.aot import aot_backend, compile_id
from dort_compare.backends.options import Options, keywords, refuse_mode
from dort_compare.backends.partition import KeptPiece
from dort_compare.cache import Store
from dort_compare.cache.folder import default_folder
from dort_compare.dump import DumpWriter
from dort_compare.lowering.lowered import Lowered
from dort_compare.provenance import Phase
from dort_compare.runtime import Program
from dort_compare.runtime.boxed import Boxed


def onnxrt(
    graph_module: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compiles a dynamo graph, forward and backward, into ONNX Runtime programs; ``options`` are fields of Options.

    Raises UsageError for a ``mode``, which is inductor's.
    """
    refuse_mode(mode)
    chosen = Options.of(**keywords(options))
    chosen = replace(chosen, rewrites=chosen.rewrites is not False)
    dump = DumpWriter.in_folder(chosen.dump, chosen.dump_prefix) if chosen.dump else None

    store = _store(chosen)
    numbers = itertools.count()
    is_dumped = dump is not None  # then the graphs stay as torch has traced them

    def compile_graph(graph_module: fx.GraphModule, example_inputs: Sequence[Any], *, phase: Phase) -> Boxed:
        def keep(piece: fx.GraphModule, _: Lowered, program: Program) -> KeptPiece:
            program.model.metadata_props[provenance.GRAPH] = str(next(numbers))
            added = dump.add_graph(program.model, piece, phase, compile_id()) if dump else None
            return KeptPiece(program.boxed(), added)

        return partition.compile_graph(chosen, graph_module, example_inputs, phase, keep, store, not is_dumped)[0]

    rewrites = bool(chosen.rewrites) and not is_dumped
    return aot_backend(compile_graph, chosen, [], rewrites=rewrites)(graph_module, example_inputs)


def _store(options: Options) -> Store | None:
    """Where models are kept for other processes; nowhere while they are dumped, for a dump shows the lowering."""
    if options.cache is False or options.dump:
        return None
    return Store(options.cache.absolute() if isinstance(options.cache, Path) else default_folder())
