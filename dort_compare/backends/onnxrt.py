"""The backend that only runs: ``torch.compile(model, backend="dort")``, successor of PyTorch's ``onnxrt``."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
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

if TYPE_CHECKING:
    from dort_compare.backends.cudagraphs import Recorder


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
    recorder = _recorder(chosen)

    def compile_graph(graph_module: fx.GraphModule, example_inputs: Sequence[Any], *, phase: Phase) -> Boxed:
        models: list[ir.Model] = []

        def keep(piece: fx.GraphModule, _: Lowered, program: Program) -> KeptPiece:
            program.model.metadata_props[provenance.GRAPH] = str(next(numbers))
            models.append(program.model)
            if dump is None:
                return KeptPiece(program.boxed())
            is_piece = piece is not graph_module
            added = dump.add_graph(program.model, piece, phase, compile_id(), is_piece=is_piece)
            return KeptPiece(program.boxed(), added)

        boxed, fallbacks = partition.compile_graph(
            chosen, graph_module, example_inputs, phase, keep, store=store, serving=not is_dumped
        )
        if dump and fallbacks:
            dump.add_fallbacks([fallback.to_json() for fallback in fallbacks])
        return recorder.recorded(boxed, graph_module, phase, models) if recorder else boxed

    rewrites = bool(chosen.rewrites) and not is_dumped
    return aot_backend(compile_graph, chosen, [], rewrites=rewrites)(graph_module, example_inputs)


def _recorder(options: Options) -> Recorder | None:
    if not options.cudagraphs:
        return None
    from dort_compare.backends.cudagraphs import Recorder  # noqa: PLC0415  (inductor takes half a second)

    return Recorder()


def _reset() -> None:
    """Forgets what torch has recorded, as ``torch._dynamo.reset()`` asks of a backend."""
    if trees := sys.modules.get("torch._inductor.cudagraph_trees"):
        trees.reset_cudagraph_trees()


onnxrt.reset = _reset  # type: ignore[attr-defined]


def _store(options: Options) -> Store | None:
    """Where models are kept for other processes; nowhere while they are dumped, for a dump shows the lowering."""
    if options.cache is False or options.dump:
        return None
    return Store(options.cache.absolute() if isinstance(options.cache, Path) else default_folder())
