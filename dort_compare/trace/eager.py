"""The reference: an FX graph on torch's own kernels."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from dort_compare.provenance import described
from dort_compare.unset import UNSET

aten = torch.ops.aten


def reproducible(target: Any) -> Any:
    """``target``, or what stands for it: zeros for what torch leaves as it was in memory, as in its lowering, and what
    does as torch traced where torch's kernel does not."""
    if target in UNSET:
        return lambda *args, **kwargs: target(*args, **kwargs).zero_()
    if str(target) == "prims.fma.default":
        return lambda *operands: target(*_in_one_dtype(operands))
    return _IN_ITS_PLACE.get(target, target)


def _in_one_dtype(operands: Sequence[Any]) -> list[Any]:
    """For the definition of an op that torch's kernels do in the dtype of the result: it would round on the way."""
    dtype = functools.reduce(torch.promote_types, (each.dtype for each in operands if isinstance(each, torch.Tensor)))
    return [each.to(dtype) if isinstance(each, torch.Tensor) else each for each in operands]


def _weight_norm_backward(grad: torch.Tensor, v: torch.Tensor, g: torch.Tensor, norms: torch.Tensor, dim: int) -> Any:
    """On the CPU the kernel of the forward op makes norms in float32 of float16, and this one takes no others."""
    is_narrow = norms.dtype == torch.float16 and norms.device.type == "cpu"
    return aten._weight_norm_interface_backward(grad, v, g, norms.float() if is_narrow else norms, dim)


_IN_ITS_PLACE: dict[Any, Any] = {
    aten.view.default: aten.reshape.default,  # a kernel may lay out its result otherwise
    aten._efficientzerotensor.default: aten.zeros.default,  # zeros without memory
    aten._weight_norm_interface_backward.default: _weight_norm_backward,
}


class Interpreter(fx.Interpreter):
    """Runs a graph on torch's kernels, whatever layout they give their results.

    What they raise has a note that says at which node.
    """

    def run_node(self, n: fx.Node) -> Any:
        self.node = n
        try:
            return super().run_node(n)
        except Exception as problem:
            problem.add_note(f"at {described(n)}")
            raise

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return super().call_function(reproducible(target), args, kwargs)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return runnable(super().get_attr(target, args, kwargs))


@dataclass(frozen=True)
class Nested:
    """A graph that an operator takes. Called, it runs on torch's kernels; no code is made of it, as it would be if the
    graph itself were called: it may come from somebody else."""

    graph_module: fx.GraphModule

    def __call__(self, *operands: Any) -> Any:
        return Interpreter(self.graph_module).run(*operands)


def runnable(held: Any) -> Any:
    """What a graph holds as its operators are to take it."""
    return Nested(held) if isinstance(held, fx.GraphModule) else held


def last_reads(graph: fx.Graph, *, keeps_outputs: bool = False) -> dict[fx.Node, list[fx.Node]]:
    """By each node, those whose values no call reads once it has run.

    That the graph returns a value counts as reading it where ``keeps_outputs``.
    """
    last: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        last[node] = node
        if node.op != "output" or keeps_outputs:
            last.update(dict.fromkeys(node.all_input_nodes, node))
    found: dict[fx.Node, list[fx.Node]] = {node: [] for node in last}
    for value, reader in last.items():
        found[reader].append(value)
    return found
