"""A second lowering, independent of ours: PyTorch's own exporter, ``torch.onnx.export``."""

from __future__ import annotations

import logging
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import fx
from torch._guards import detect_fake_mode

from dort_compare import provenance
from dort_compare.errors import ExportError
from dort_compare.lowering.lowered import Lowered
from dort_compare.lowering.torch_model import Exported
from dort_compare.lowering.torch_program import as_exported_program, fx_name
from dort_compare.provenance import Phase
from dort_compare.signature import Signature

OPSETS = range(18, 26)
"""What torch writes by itself; to others it converts in ways that lose where a node comes from."""

_MEND = 'lower it with exporter="native"'
_LOGGERS = ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")


def export_with_torch(graph_module: fx.GraphModule, phase: Phase, target_opset: int) -> Lowered:
    """Converts one AOTAutograd graph with ``torch.onnx.export(..., dynamo=True, optimize=False)``.

    The last ONNX value of an FX node bears its name, dtype, shape and provenance; every ONNX node that was made for
    an FX node bears its provenance.

    Raises ExportError where PyTorch cannot convert the graph or ``target_opset`` is not one of 18 to 25.
    """
    signature = Signature.of(graph_module)
    if target_opset not in OPSETS:
        raise ExportError(f"PyTorch's exporter writes opset {OPSETS[0]} to {OPSETS[-1]}, not {target_opset}; {_MEND}")
    with _quiet(), _without_foreign_guards(graph_module):
        try:
            program, names = as_exported_program(graph_module)
            exported = torch.onnx.export(program, opset_version=target_opset, optimize=False, verbose=False)
            assert exported is not None
            model = Exported(graph_module, phase, exported).finished(names, signature)
        except Exception as error:
            raise ExportError(_describe(error, graph_module)) from error
    return Lowered(model, signature, phase)


@contextmanager
def _without_foreign_guards(graph_module: fx.GraphModule) -> Iterator[None]:
    """Takes away the guards on sizes that the exporter makes up itself, which torch could not check; those on sizes of
    the graph stay, for which the exporter has chosen what it writes."""
    mode = detect_fake_mode([node.meta.get("val") for node in graph_module.graph.nodes])
    env = mode.shape_env if mode else None
    if env is None:
        yield
        return
    known = {symbol for symbol, sources in env.var_to_sources.items() if sources}
    count = len(env.guards)
    try:
        yield
    finally:
        env.guards[count:] = [guard for guard in env.guards[count:] if guard.expr.free_symbols <= known]


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps the exporter's warnings and log lines off the terminal."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _describe(error: Exception, graph_module: fx.GraphModule) -> str:
    """One line: the FX node at work when the innermost error arose, if any, the reason and the mend."""
    chain: list[BaseException] = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    nodes = [node for each in chain for node in _nodes_at_work(each, graph_module)]
    what = "the graph"
    if nodes:
        source = provenance.source_line(nodes[-1]) or "source line unknown"
        what = f"{provenance.target_name(nodes[-1])} (FX node {nodes[-1].name}, {source})"
    reason = next(iter(str(chain[-1]).strip().splitlines()), type(chain[-1]).__name__)
    return f"PyTorch's exporter cannot convert {what}: {reason}; {_MEND}"


def _nodes_at_work(error: BaseException, graph_module: fx.GraphModule) -> Iterator[fx.Node]:
    """The nodes of the given graph that the frames of a traceback were working on, outermost first."""
    own = {node.name: node for node in graph_module.graph.nodes}
    for frame, _ in traceback.walk_tb(error.__traceback__):
        node = frame.f_locals.get("node")
        if isinstance(node, fx.Node):
            name = node.name if node.graph is graph_module.graph else fx_name(node)
            if name in own:
                yield own[name]
