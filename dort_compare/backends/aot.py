"""The seam to AOTAutograd: one compiler a phase, one decomposition table, boxed calls."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config as functorch_config
from torch._guards import CompileContext, TracingContext
from torch._inductor import config as inductor_config

from dort_compare.backends.complex_parts import write_out_complex
from dort_compare.backends.effects import take_checks_out
from dort_compare.backends.expanded import expand
from dort_compare.backends.fallback import Fallback
from dort_compare.backends.forward_backward import cut_joint, rewritten_and_cut
from dort_compare.backends.options import Options
from dort_compare.backends.regions import write_out_regions
from dort_compare.backends.root_module import name_root
from dort_compare.backends.unrecorded_writes import hide_writes
from dort_compare.backends.untraceable import Obstacle, fall_back, is_torchs_own, obstacle
from dort_compare.backends.written_views import show_inputs
from dort_compare.errors import one_line
from dort_compare.log import tracing
from dort_compare.lowering import decompositions
from dort_compare.lowering.affine_grid import traceable_affine_grid
from dort_compare.lowering.decompositions import Decomposition
from dort_compare.lowering.interpolation import whole_interpolation
from dort_compare.lowering.margin_loss import right_margin_loss
from dort_compare.provenance import Phase


class GraphCompiler(Protocol):
    """Turns one graph into the boxed callable that AOTAutograd runs in its place."""

    def __call__(
        self, graph_module: fx.GraphModule, example_inputs: Sequence[Any], *, phase: Phase
    ) -> Callable[[list[Any]], Any]: ...


def aot_backend(
    compiler: GraphCompiler, options: Options, fallbacks: list[Fallback], *, rewrites: bool
) -> Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]:
    """A torch.compile backend that gives each graph to ``compiler``, with the phase it was traced for.

    What AOTAutograd cannot take runs in eager torch, and ``fallbacks`` grows by its nodes. With ``rewrites`` forward
    and backward graph are rewritten where both are at hand.
    """
    table = decompositions()

    def compile_graph(graph_module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        if found := obstacle(graph_module, example_inputs):
            fallbacks.extend(fall_back(options, graph_module, example_inputs, found))
            return graph_module.forward
        name_root(graph_module)
        write_out_regions(graph_module)
        # donated activations forbid retain_graph=True; what nobody reads is drawn all the same, as eager draws it
        with (
            functorch_config.patch(donated_buffer=False),
            inductor_config.patch(fallback_random=True),
            _plain_recurrent_layers(),
            right_margin_loss(),
            traceable_affine_grid(),
            whole_interpolation() if options.exporter == "native" else nullcontext(),
            tracing(options.verbose, graph_module, compile_id()) as told,
        ):
            traced = told.around(_agreed(compiler, table))
            backend = aot_autograd(
                fw_compiler=functools.partial(traced, phase="forward"),
                bw_compiler=functools.partial(traced, phase="backward"),
                inference_compiler=functools.partial(traced, phase="inference"),
                decompositions=table,
                partition_fn=functools.partial(_cut_in_parts, rewritten_and_cut if rewrites else cut_joint),
            )
            try:
                return backend(graph_module, example_inputs)
            except AssertionError as problem:
                if not is_torchs_own(problem):
                    raise
                failed = Obstacle(
                    f"AOTAutograd fails on it: {one_line(problem)}", "fallback=True leaves it to eager torch"
                )
                fallbacks.extend(fall_back(options, graph_module, example_inputs, failed))
                return graph_module.forward

    return compile_graph


def _cut_in_parts(
    cut: Callable[..., tuple[fx.GraphModule, fx.GraphModule]], joint: fx.GraphModule, inputs: Any, **given: Any
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Writes complex arithmetic out before a joint graph is cut, so that real numbers are saved."""
    write_out_complex(joint)
    return cut(joint, inputs, **given)


def _agreed(compiler: GraphCompiler, table: Mapping[Any, Decomposition]) -> GraphCompiler:
    """``compiler``, and what AOTAutograd is to know of it: that no activations are donated, which it asks for in each
    backward pass too, where the views of inputs lie that a graph writes, and which writes autograd is not to see."""

    def compile_graph(
        graph_module: fx.GraphModule, example_inputs: Sequence[Any], *, phase: Phase
    ) -> Callable[..., Any]:
        context = TracingContext.try_get()
        if context and context.fw_metadata:
            context.fw_metadata.bw_donated_idxs = []
            if phase != "backward":
                show_inputs(graph_module, context.fw_metadata)
                hide_writes(context.fw_metadata)
        expand(graph_module, table)
        write_out_complex(graph_module)
        take_checks_out(graph_module)
        return compiler(graph_module, example_inputs, phase=phase)

    return compile_graph


@contextmanager
def _plain_recurrent_layers() -> Iterator[None]:
    """Lets torch decompose an LSTM into arithmetic, not into oneDNN's fused layer, whose gradient it cannot trace."""
    enabled = torch._C._get_mkldnn_enabled()  # torch.backends.mkldnn.flags would warn about TF32
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(enabled)


def compile_id() -> str | None:
    """torch's id of the compilation under way: "<number of the frame>/<number of the recompile>".

    A backward graph bears the id of its forward graph, also where it is compiled later. None outside of torch.compile.
    """
    found = CompileContext.current_compile_id()
    return str(found) if found else None


def still_places() -> Sequence[int]:
    """The places of the inputs of the graph under way that AOTAutograd knows for parameters and buffers."""
    context = TracingContext.try_get()
    return context.fw_metadata.static_input_indices if context and context.fw_metadata else ()


def still_inputs(graph_module: fx.GraphModule) -> frozenset[str]:
    """The inputs of a graph that are parameters and buffers, by name."""
    names = [node.name for node in graph_module.graph.nodes if node.op == "placeholder"]
    return frozenset(names[place] for place in still_places())
