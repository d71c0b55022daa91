"""The backend that only runs: ``torch.compile(model, backend="dort")``, successor of PyTorch's ``onnxrt``."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir
from torch import fx

from dort_compare.backends.aot import aot_backend, lower_with, make_program
from dort_compare.backends.options import Options
from dort_compare.dump import DumpWriter
from dort_compare.provenance import Phase


def onnxrt(
    graph_module: fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Compiles a dynamo graph, forward and backward, into ONNX Runtime programs; ``options`` are fields of Options."""
    chosen = Options.of(**(options or {}))
    dump = DumpWriter.in_folder(chosen.dump, chosen.dump_prefix) if chosen.dump else None

    numbers = itertools.count()

    def compile_graph(graph_module: fx.GraphModule, example_inputs: Sequence[Any], *, phase: Phase) -> Any:
        program = make_program(chosen, lower_with(chosen, graph_module, phase, next(numbers)), example_inputs)
        if dump:
            dump.add_graph(ir.to_proto(program.model), graph_module, phase)
        return program.boxed()

    return aot_backend(compile_graph)(graph_module, example_inputs)
