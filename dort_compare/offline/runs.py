"""The recorded runs of a dump, ready to run again, perhaps with another model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import onnx_ir as ir

from dort_compare.align.adopted import adopted, typed
from dort_compare.align.graph_outputs import returned_shapes, returning_views
from dort_compare.align.returned_twice import with_names_of_their_own
from dort_compare.dump.model_file import files_of, read_model
from dort_compare.dump.reader import Device, DumpedGraph, files_in, graphs_in
from dort_compare.errors import DumpError, ExecutionError, UsageError
from dort_compare.lowering.targets import find_target
from dort_compare.offline.unfit_models import refuse_made_twice, refuse_other_inputs, refuse_other_order, refuse_unlike
from dort_compare.problems import as_dump_error
from dort_compare.runtime.kernels import with_kernels
from dort_compare.runtime.providers import Provider, SessionSettings, with_cpu
from dort_compare.runtime.session import make_session
from dort_compare.trace import GraphRun
from dort_compare.trace.as_it_is import AS_IT_IS
from dort_compare.trace.functions import refuse_too_many
from dort_compare.trace.ordered import in_order


def files_read(dump: str | Path, model: str | Path | None = None) -> Iterator[Path]:
    """The files that a dump is made of, if it can be read, and those of a ``model`` in the place of one of its own."""
    if model is not None:
        yield from files_of(Path(model))
    with suppress(DumpError):
        yield from files_in(Path(dump))


def recorded_graphs(dump: Path, which: str | int | None = None) -> list[DumpedGraph]:
    """The graphs that have recorded inputs, in the order of their runs; only the one that ``which`` names, if given.

    Raises DumpError where there is none, UsageError where ``which`` names none.
    """
    graphs = graphs_in(dump)
    named = [each for each in graphs if which is None or str(which) in (each.name, str(each.number))]
    if not named and graphs:
        raise UsageError(f"{dump} has no graph {str(which)!r}; choose one of {names_of(graphs)}")
    recorded = sorted((each for each in named if each.run is not None), key=lambda each: each.run or 0)
    if not recorded:
        what = names_of(named) or "any graph"
        raise DumpError(f"{dump} holds no inputs of {what}: it did not run when the dump was made, run it then")
    return recorded


def dumped_runs(
    dump: str | Path, which: str | int | None, provider: Device, model: str | Path | None = None
) -> list[tuple[DumpedGraph, GraphRun]]:
    """The graphs of ``recorded_graphs`` with their runs; ``model`` is an ONNX file in the place of the only one's.

    Raises what ``recorded_graphs`` and ``dumped_run`` do, and UsageError where one model would stand for several.
    """
    providers = providers_of(provider)
    graphs = recorded_graphs(Path(dump), which)
    if model is not None and len(graphs) > 1:
        raise UsageError(f"{model} can stand for one graph only; choose it with --graph: {names_of(graphs)}")
    other = Path(model) if model is not None else None
    return [(each, dumped_run(each, provider, providers, other)) for each in graphs]


def dumped_run(
    graph: DumpedGraph, device: Device, providers: Sequence[Provider], model: Path | None = None
) -> GraphRun:
    """The recorded run of a graph, on ``device``; ``model`` is another ONNX file in the place of its own.

    Raises DumpError where the files cannot be read, a model makes a value twice, or the other model reads what the
    run has no value for, returns its outputs in another order, or has nothing that can be compared.
    """
    own = in_order(graph.model())
    graph_module = graph.graph_module(find_target, device)
    inputs = graph.inputs(graph_module)
    with running(title(graph, model)):
        path = model or graph.file("onnx")
        given = own if model is None else in_order(read_model(model, beside=True))
        refuse_made_twice(given, path)
        if model is not None:
            own = returning_views(own, given, graph_module)
            given = with_names_of_their_own(given, [value.name for value in own.graph.output])
        chosen = typed(own) if model is None else adopted(own, given, returned_shapes(graph_module))
        refuse_unlike(own, chosen, path)
        runnable = ir.to_proto(with_kernels(ir.from_proto(chosen), providers, [ir.DataType.BFLOAT16]))
        refuse_other_inputs(runnable, inputs, path)
        refuse_other_order(graph_module, chosen, path)
    return GraphRun(
        phase=graph.phase,
        index=graph.number,
        graph_module=graph_module,
        onnx_model=runnable,
        inputs=inputs,
        providers=providers,
        compile_id=graph.compile_id,
        input_names=graph.input_names,
        is_piece=graph.is_piece,
        number=graph.of_graph,
        modules=graph.modules,
    )


def title(graph: DumpedGraph, model: Path | None) -> str:
    """How messages name what runs: a graph of a dump, or the model in its place."""
    return f"graph {graph.name} of {graph.folder}" if model is None else str(model)


@contextmanager
def running(what: str) -> Iterator[None]:
    """Within it a dump's graph runs: whatever fails there is a DumpError that says which one."""
    with as_dump_error(what):
        try:
            yield
        except ExecutionError as problem:
            raise DumpError(f"{what} cannot be run: {problem}") from problem


def providers_of(provider: Device) -> list[Provider]:
    """The providers of a session on ``provider``; what it has no kernel for runs on the CPU."""
    return SessionSettings(providers=tuple(with_cpu(provider))).resolved_providers()


def refuse_unloadable(run: GraphRun, path: Path) -> None:
    """Raises DumpError where ONNX Runtime does not take the model of a run as a whole: a comparison runs it in parts.

    The reference evaluator is not asked: it looks at a node when it runs. A model that computes nothing, which ONNX
    Runtime refuses, is not run.
    """
    if run.engine != "ort" or not run.onnx_model.graph.node:
        return
    refuse_too_many(run.onnx_model, str(path))
    try:
        make_session(run.onnx_model, AS_IT_IS, run.providers)
    except ExecutionError as problem:
        raise DumpError(f"{path} is no model that runs: {problem}") from None


def names_of(graphs: Sequence[DumpedGraph]) -> str:
    """Their names, for a message."""
    return ", ".join(each.name for each in graphs)
