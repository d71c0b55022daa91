"""An AOTAutograd graph as the ``ExportedProgram`` that ``torch.onnx.export`` takes.

The graph is traced once more, with our decompositions and with the value of every FX node as an output, so that what
an FX node became is read off the outputs and never guessed. Each traced node carries the name of its FX node as an
annotation, which outlives the exporter's own decompositions.
"""

from __future__ import annotations

import operator
from typing import Any, cast

import torch
from torch import fx
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ArgumentSpec,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from dort_compare.lowering.torch_decompositions import decompositions
from dort_compare.provenance import FX_NODE


def as_exported_program(graph_module: fx.GraphModule) -> tuple[ExportedProgram, list[str]]:
    """The program, and the names of the FX nodes whose values it returns, in order.

    Its user inputs are the placeholders in order; tensors that the graph module holds become constants.
    """
    constants = _constants(graph_module)
    traced, names = _trace(graph_module, constants)
    return _program(traced, constants), names


def fx_name(node: fx.Node) -> str | None:
    """The name of the FX node that a node of the program, or of what the exporter makes of it, stems from."""
    return node.meta.get("custom", {}).get(FX_NODE)


class _Annotating(fx.Interpreter):
    """Runs a graph under a tracer; what is traced for an FX node is annotated with its name."""

    def __init__(self, graph_module: fx.GraphModule, constants: dict[str, torch.Tensor]) -> None:
        super().__init__(graph_module, garbage_collect_values=False)
        self._constants = constants
        self._name = ""

    def run_node(self, n: fx.Node) -> Any:
        self._name = n.name
        return super().run_node(n)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self._constants[target] if target in self._constants else super().get_attr(target, args, kwargs)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        meta = fx.traceback.get_current_meta()
        meta["custom"] = {**meta.get("custom", {}), FX_NODE: self._name}
        return super().call_function(target, args, kwargs)


def _trace(graph_module: fx.GraphModule, constants: dict[str, torch.Tensor]) -> tuple[fx.GraphModule, list[str]]:
    """A flat ATen graph that takes the constants, then the inputs, and returns the value of every FX node named."""
    placeholders = [node.meta["val"] for node in graph_module.graph.nodes if node.op == "placeholder"]
    inputs = [value.detach() if isinstance(value, torch.Tensor) else value for value in placeholders]
    fake_mode = detect_fake_mode(inputs) or FakeTensorMode()
    fakes = [fake_mode.from_tensor(constant) for constant in constants.values()]
    names: list[str] = []

    def run(*values: Any) -> list[Any]:
        interpreter = _Annotating(graph_module, dict(zip(constants, values, strict=False)))
        with fx.traceback.preserve_node_meta():
            interpreter.run(*values[len(constants) :])
        kept = {node.name: value for node, value in interpreter.env.items() if _is_computed(node, value)}
        names[:] = kept
        return list(kept.values())

    with fake_mode, torch.no_grad(), torch._C._DisableAutocast():
        return make_fx(run, decomposition_table=decompositions())(*fakes, *inputs), names


def _constants(graph_module: fx.GraphModule) -> dict[str, torch.Tensor]:
    targets = dict.fromkeys(str(node.target) for node in graph_module.graph.nodes if node.op == "get_attr")
    attributes = {target: operator.attrgetter(target)(graph_module) for target in targets}
    return {target: value for target, value in attributes.items() if isinstance(value, torch.Tensor)}


def _is_computed(node: fx.Node, value: Any) -> bool:
    return node.op in ("call_function", "get_attr") and isinstance(value, (torch.Tensor, torch.SymInt))


def _program(traced: fx.GraphModule, constants: dict[str, torch.Tensor]) -> ExportedProgram:
    """The traced graph as an ExportedProgram, put together by hand: ``torch.export.export`` takes no SymInt."""
    placeholders = [node for node in traced.graph.nodes if node.op == "placeholder"]
    returned = cast("list[fx.Node]", traced.graph.output_node().args[0])
    given = placeholders[len(constants) :]
    held = zip(placeholders, constants, strict=False)
    inputs = [InputSpec(InputKind.CONSTANT_TENSOR, _argument(node), target) for node, target in held]
    inputs += [InputSpec(InputKind.USER_INPUT, _argument(node), None) for node in given]
    outputs = [OutputSpec(OutputKind.USER_OUTPUT, _argument(node), None) for node in returned]
    call = ModuleCallSignature(
        inputs=[],
        outputs=[],
        in_spec=pytree.tree_structure((tuple(given), {})),
        out_spec=pytree.tree_structure(returned),
    )
    return ExportedProgram(
        root=traced,
        graph=traced.graph,
        graph_signature=ExportGraphSignature(inputs, outputs),
        state_dict={},
        range_constraints={},
        module_call_graph=[ModuleCallEntry("", call)],
        constants=dict(constants),
    )


def _argument(node: fx.Node) -> ArgumentSpec:
    return (TensorArgument if isinstance(node.meta["val"], torch.Tensor) else SymIntArgument)(name=node.name)
