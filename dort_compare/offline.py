"""``check``, ``bisected`` and ``repro``: what a dump alone tells, without the code of the model that it was made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import onnx
import onnx_ir as ir
from onnx_ir.tensor_adapters import to_torch_dtype
from torch import fx

from dort_compare.align.adopted import adopted, typed
from dort_compare.align.graph_outputs import places
from dort_compare.backends.record import GraphId
from dort_compare.comparison import Effort
from dort_compare.dump.model_file import files_of, read_model
from dort_compare.dump.reader import Device, DumpedGraph, files_in, graphs_in
from dort_compare.errors import DumpError, ExecutionError, UsageError, nearest, told
from dort_compare.lowering.targets import find_target
from dort_compare.measure.graph_rows import graph_rows
from dort_compare.measure.optimizers.bisect import Bisection, bisect
from dort_compare.measure.pictures import Pictures
from dort_compare.measure.reach import Lineage
from dort_compare.measure.rows import Row
from dort_compare.measure.verdict import judge
from dort_compare.report import Report
from dort_compare.report.environment import environment
from dort_compare.report.progress import Waiting
from dort_compare.repro import case_of, write_case
from dort_compare.runtime.kernels import with_kernels
from dort_compare.runtime.program import Argument
from dort_compare.runtime.providers import Provider, SessionSettings
from dort_compare.runtime.session import make_session
from dort_compare.scalars import as_tensor
from dort_compare.trace import GraphRun
from dort_compare.trace.as_it_is import AS_IT_IS
from dort_compare.trace.executions import MEMORY
from dort_compare.trace.functions import refuse_too_many
from dort_compare.trace.graph_run import EngineName, check_engine
from dort_compare.trace.ordered import in_order


def check(
    dump: str | Path,
    graph: str | int | None = None,
    *,
    model: str | Path | None = None,
    engine: EngineName = "ort",
    provider: Device = "cpu",
    memory: int = MEMORY,
    repeats: int = 1,
) -> Report:
    """Compares the graphs of a dump with eager torch, on the inputs of the run that the dump was made of.

    ``graph`` names one graph by its number or name; without it, all that have run are compared, in the order in which
    they did. ``model`` is an ONNX file in the place of that graph's model. ``engine`` is what runs the models: "ort",
    or "reference" for the ONNX reference evaluator. ``provider`` is "cpu" or "cuda", ``memory`` (in MiB) and
    ``repeats`` are those of ``compare``.

    Raises DumpError for a dump or model that cannot be read or run, UsageError for a wrong call.
    """
    Effort(memory, repeats)
    check_engine(engine)
    providers = _providers(provider)
    graphs = _for(model, recorded_graphs(Path(dump), graph))
    other = Path(model) if model is not None else None
    runs = [replace(dumped_run(each, provider, providers, other), engine=engine) for each in graphs]
    for run, each in zip(runs, graphs, strict=True):
        _refuse_unloadable(run, other or each.file("onnx"))
    rows: list[Row] = []
    for run, each in zip(runs, graphs, strict=True):
        with _running(_title(each, other)), Waiting() as waiting:
            pictures = Pictures()
            found = graph_rows(run, memory, repeats, (pictures.see,))
            rows += pictures.on(waiting.each(f"values of {each.name}", found, run.calls))
    identities = tuple(GraphId(each.number, each.phase, each.compile_id) for each in graphs)
    settings = {"dump": str(dump), "model": other and str(other), "engine": engine, "provider": provider}
    return Report(
        *judge(rows, (), Lineage(runs)),
        tuple(rows),
        (),
        graphs=identities,
        settings={**settings, "memory": memory, "repeats": repeats},
        environment=environment(),
    )


def repro(
    dump: str | Path, node: str, folder: str | Path, graph: str | int | None = None, *, provider: Device = "cpu"
) -> None:
    """Writes a folder that shows what ONNX Runtime makes of one FX node of a dump, and what torch does.

    It holds the ONNX nodes of that one FX node, torch's values of its operands and results, and a script that needs
    only onnxruntime and numpy. ``graph`` has to be given where several graphs have a node of that name.

    Raises DumpError for a dump that cannot be read, or a folder that is not empty; UsageError for a wrong call.
    """
    providers = _providers(provider)
    graphs = recorded_graphs(Path(dump), graph)
    runs = [dumped_run(each, provider, providers) for each in graphs]
    calls = [{n.name for n in run.graph_module.graph.nodes if n.op == "call_function"} for run in runs]
    having = [run for run, names in zip(runs, calls, strict=True) if node in names]
    if not having:
        close = nearest(node, sorted(set().union(*calls)))
        raise UsageError(f"no call {node!r} in {_names(graphs)} of {dump}{close}; check names those that differ")
    if len(having) > 1:
        numbers = ", ".join(str(run.index) for run in having)
        raise UsageError(f"graphs {numbers} have a node {node}; choose one with --graph")
    (run,) = having
    with _running(f"node {node} of graph {run.index} of {dump}"):
        case = case_of(run, node)
    write_case(case, Path(folder))


def bisected(
    dump: str | Path, graph: str | int | None = None, *, model: str | Path | None = None, provider: Device = "cpu"
) -> Iterator[tuple[str, Bisection]]:
    """By the names of a dump's graphs, the optimizers of ONNX Runtime that make their models depart; see ``bisect``.

    The arguments are those of ``check``. Raises, at the call, UsageError for a wrong one and DumpError for a dump or
    model that cannot be read; DumpError for one that cannot be run, when its graph's turn comes.
    """
    providers = _providers(provider)
    graphs = _for(model, recorded_graphs(Path(dump), graph))
    other = Path(model) if model is not None else None
    runs = [dumped_run(each, provider, providers, other) for each in graphs]

    def bisections() -> Iterator[tuple[str, Bisection]]:
        for run, each in zip(runs, graphs, strict=True):
            _refuse_unloadable(run, other or each.file("onnx"))
            inputs = {name: as_tensor(value) for name, value in run.inputs.items()}
            with _running(_title(each, other)):
                found = bisect(run.onnx_model, inputs, providers)
            yield each.name, found

    return bisections()


def _for(model: str | Path | None, graphs: list[DumpedGraph]) -> list[DumpedGraph]:
    """``graphs``, of which there must be one where another ``model`` takes its place."""
    if model is not None and len(graphs) > 1:
        raise UsageError(f"{model} can stand for one graph only; choose it with --graph: {_names(graphs)}")
    return graphs


def _title(graph: DumpedGraph, model: Path | None) -> str:
    """How messages name what runs: a graph of a dump, or the model in its place."""
    return f"graph {graph.name} of {graph.folder}" if model is None else str(model)


@contextmanager
def _running(what: str) -> Iterator[None]:
    """Within it a dump's graph runs: whatever fails there is a DumpError that says which one."""
    with told(what):
        try:
            yield
        except ExecutionError as problem:
            raise DumpError(f"{what} cannot be run: {problem}") from problem


def _providers(provider: Device) -> list[Provider]:
    names = ("cpu",) if provider == "cpu" else (provider, "cpu")
    return SessionSettings(providers=names).resolved_providers()


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
        raise UsageError(f"{dump} has no graph {str(which)!r}; choose one of {_names(graphs)}")
    recorded = sorted((each for each in named if each.run is not None), key=lambda each: each.run or 0)
    if not recorded:
        what = _names(named) or "any graph"
        raise DumpError(f"{dump} holds no inputs of {what}: it did not run when the dump was made, run it then")
    return recorded


def dumped_run(
    graph: DumpedGraph, device: Device, providers: Sequence[Provider], model: Path | None = None
) -> GraphRun:
    """The recorded run of a graph, on ``device``; ``model`` is another ONNX file in the place of its own.

    Raises DumpError where the files cannot be read, the other model reads what the run has no value for, or returns its
    outputs in another order.
    """
    own = in_order(graph.model())
    graph_module = graph.graph_module(find_target, device)
    inputs = graph.inputs(graph_module)
    with _running(_title(graph, model)):
        chosen = typed(own) if model is None else adopted(own, in_order(read_model(model, beside=True)))
        runnable = ir.to_proto(with_kernels(ir.from_proto(chosen), providers))
        _refuse_other_inputs(runnable, inputs, model or graph.file("onnx"))
        _refuse_other_order(graph_module, chosen, model or graph.file("onnx"))
    return GraphRun(
        phase=graph.phase,
        index=graph.number,
        graph_module=graph_module,
        onnx_model=runnable,
        inputs=inputs,
        providers=providers,
        compile_id=graph.compile_id,
        input_names=graph.input_names,
    )


def _refuse_unloadable(run: GraphRun, path: Path) -> None:
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


def _refuse_other_inputs(model: onnx.ModelProto, given: Mapping[str, Argument], path: Path) -> None:
    constants = {tensor.name for tensor in model.graph.initializer}
    read = [value for value in model.graph.input if value.name not in constants]
    missing = [value.name for value in read if value.name not in given]
    if missing:
        raise DumpError(
            f"{path} reads {', '.join(missing[:5])}, for which the dump holds no value: give it those names"
        )
    for value in read:
        dtype = to_torch_dtype(ir.DataType(value.type.tensor_type.elem_type))
        recorded = as_tensor(given[value.name]).dtype
        if dtype != recorded:
            raise DumpError(
                f"{path} reads {value.name} as {dtype}, the dump holds {recorded}: convert it inside the model"
            )
        _refuse_other_shape(value, tuple(as_tensor(given[value.name]).shape), path)


def _refuse_other_order(graph: fx.GraphModule, model: onnx.ModelProto, path: Path) -> None:
    at = places(graph, model)
    if list(at.values()) != sorted(at.values()):
        order = ", ".join(sorted(at, key=at.__getitem__)[:5])
        raise DumpError(
            f"{path} returns {order} in this order, the graph {', '.join(list(at)[:5])}: who calls a model by position "
            "takes one for the other; give it that order"
        )


def _refuse_other_shape(value: onnx.ValueInfoProto, recorded: tuple[int, ...], path: Path) -> None:
    if not value.type.tensor_type.HasField("shape"):
        return
    sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in value.type.tensor_type.shape.dim]
    if len(sizes) != len(recorded) or any(n not in (None, m) for n, m in zip(sizes, recorded, strict=True)):
        declared = "x".join("?" if n is None else str(n) for n in sizes) or "a number"
        raise DumpError(
            f"{path} declares {value.name} as {declared}, the dump holds {'x'.join(map(str, recorded)) or 'a number'}: "
            "give it that shape"
        )


def _names(graphs: Sequence[DumpedGraph]) -> str:
    return ", ".join(each.name for each in graphs)
