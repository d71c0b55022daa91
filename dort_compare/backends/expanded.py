"""Higher-order operators in plain ones: flex attention by its definition, loops by their rounds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._C import DispatchKey
from torch._guards import detect_fake_mode
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from dort_compare.backends.graph_copies import put_in_place
from dort_compare.dtypes import is_floating_tensor
from dort_compare.errors import one_line
from dort_compare.fx_graph import graph_of
from dort_compare.node_meta import OPERATION, PASS, STACK_TRACE, STACKS, key_in_loop
from dort_compare.provenance import described
from dort_compare.unset import UNSET

MOST_NODES = 2**13
"""Of a loop that is spelled out."""
_PHASE = (OPERATION, PASS, "autograd_backward")
"""What says, in the ``meta`` of a node, to which pass and operation it belongs: to those of the operator."""
_LOG = logging.getLogger("dort_compare.backends")
_Table = Mapping[Any, Callable[..., Any]]

aten = torch.ops.aten
higher_order = torch.ops.higher_order


def expand(graph_module: fx.GraphModule, decompositions: _Table) -> None:
    """Puts plain operators in the place of the higher-order ones that have a definition in them.

    Those whose course the data decide on stay, and so do loops of a length that is not known or that come to more than
    ``MOST_NODES``, which have lowerings of their own, and what torch cannot trace.
    """
    calls = [node for node in graph_module.graph.nodes if _can_be_expanded(node)]
    for call in calls:
        try:
            traced = _definition_of(call, decompositions)
        except Exception as problem:  # noqa: BLE001  (whatever it is, the call can run as it stands)
            _LOG.debug("%s is not spelled out: %s", described(call), one_line(problem))
            continue
        copies = _put_in_place(call, traced)
        calls += [copy for copy in copies if _can_be_expanded(copy)]
    if calls:
        graph_module.delete_all_unused_submodules()
        graph_module.recompile()


def _can_be_expanded(node: fx.Node) -> bool:
    if node.target not in _LOOPS:
        return node.target in _DENSE
    nodes = _size(node)
    return isinstance(nodes, int) and 0 < nodes <= MOST_NODES


def _size(node: fx.Node) -> int | torch.SymInt:
    """How many nodes it comes to, spelled out."""
    if node.target not in _LOOPS:
        return 1
    return _rounds(node) * sum(_size(each) for body in _bodies(node).values() for each in body.graph.nodes)


def _rounds(loop: fx.Node) -> int | torch.SymInt:
    """As many as there are rows in what the loop goes along."""
    xs: Any = loop.args[2] if loop.target is higher_order.scan else loop.args[1]
    return xs[0].meta["val"].shape[0] if xs else 0


def _bodies(call: fx.Node) -> dict[fx.Node, fx.GraphModule]:
    """The graphs that a call takes."""
    return {node: graph for node in call.all_input_nodes if (graph := graph_of(node)) is not None}


def _definition_of(call: fx.Node, decompositions: _Table) -> fx.GraphModule:
    """What a call does, as a graph of plain operators that takes what ``_operands`` names."""
    bodies: dict[fx.Node, Any] = {node: _told(body) for node, body in _bodies(call).items()}
    operands = _operands(call)

    def compute(*values: Any) -> Any:
        known = {**bodies, **dict(zip(operands, values, strict=True))}
        args, kwargs = fx.map_arg((call.args, call.kwargs), known.__getitem__)
        return _of_known_dtypes(_function(call.target)(*args, **kwargs), call.meta["val"])

    without = _without_gradients(call)
    given = [node.meta["val"] if node in without else _asking(node.meta["val"]) for node in operands]
    traced = _traced(compute, given, decompositions)
    _spare_unset_memory(traced.graph)
    return traced


def _operands(call: fx.Node) -> list[fx.Node]:
    bodies = _bodies(call)
    return [node for node in call.all_input_nodes if node not in bodies]


def _put_in_place(call: fx.Node, traced: fx.GraphModule) -> list[fx.Node]:
    given = dict(zip(traced.graph.find_nodes(op="placeholder"), _operands(call), strict=True))
    copies = put_in_place(call, traced, given)
    for copy in copies:
        _sign(copy.meta, call.meta)
    return copies


def _sign(inner: dict[str, Any], outer: Mapping[str, Any]) -> None:
    """Says of a node in an operator where it comes from: from the line and the modules in a body, else from those of
    the operator. Modules that a loop calls are no calls that eager makes, and so their keys are not torch's."""
    for key in STACKS:
        around, within = outer.get(key) or {}, inner.pop(key, None) or {}
        known = [*within][: len(around)] == [*around]
        own = {key_in_loop(name): module for name, module in [*within.items()][len(around) :]} if known else {}
        if around or own:
            inner[key] = {**around, **own}
    for key in _PHASE:
        inner.pop(key, None)
    inner.update({key: outer[key] for key in _PHASE if key in outer})
    if not inner.get(STACK_TRACE) and STACK_TRACE in outer:
        inner[STACK_TRACE] = outer[STACK_TRACE]


def _of_known_dtypes(results: Any, known: Any) -> Any:
    """Results of a definition in the dtypes that the graph has them in: torch takes a logarithm of a sum that attention
    computes in float64 for float32."""
    leaves, structure = pytree.tree_flatten(results)
    pairs = zip(leaves, pytree.tree_leaves(known), strict=True)
    return pytree.tree_unflatten(
        [x.to(like.dtype) if isinstance(x, torch.Tensor) else x for x, like in pairs], structure
    )


def _without_gradients(call: fx.Node) -> set[Any]:
    """What the scores of attention are computed with that asks for no gradient."""
    if call.target is not higher_order.flex_attention_backward:
        return set()
    joint: Any = call.args[8]
    buffers: Any = call.args[12]
    results: Any = _bodies(call)[joint].graph.output_node().args[0]
    gradients = results[5:]  # after those by the score and by four indices
    return {*buffers} - {buffer for buffer, gradient in zip(buffers, gradients, strict=True) if gradient is not None}


def _asking(value: Any) -> Any:
    """Torch leaves out the gradients by tensors that ask for none."""
    return value.detach().requires_grad_() if is_floating_tensor(value) else value


def _traced(compute: Callable[..., Any], operands: Sequence[Any], decompositions: _Table) -> fx.GraphModule:
    """The plain operators of ``compute``, none of which writes."""
    mode = detect_fake_mode(operands)
    assert mode is not None
    table = {**decompositions, torch.ops.flex_lib.zeros_and_scatter.default: _scattered}
    with mode, torch.no_grad():
        writing = make_fx(compute)(*operands)
        plain = functionalize(_told(writing), remove="mutations")
        return make_fx(plain, decomposition_table=table)(*operands)


def _told(graph_module: fx.GraphModule) -> Callable[..., Any]:
    """The graph as a function of which a trace knows where each node comes from."""

    def run(*values: Any) -> Any:
        with fx.traceback.preserve_node_meta():
            results = fx.Interpreter(graph_module).run(*values)
        return [*results] if isinstance(results, list) else results  # vmap takes fx's own lists for leaves

    return run


def _spare_unset_memory(graph: fx.Graph) -> None:
    """Takes what is copied into new memory for a copy; nobody is to look at what that memory held before."""
    unset: set[Any] = set()
    for node in graph.nodes:
        if node.target in UNSET or (node.target is aten.copy.default and unset.issuperset(node.all_input_nodes)):
            unset.add(node)
        elif node.target is aten.copy.default and node.args[0] in unset:
            node.target, node.args, node.kwargs = aten._to_copy.default, (node.args[1],), {}
    graph.eliminate_dead_code()


# Definitions, of the arguments of the operators.


def _function(target: Any) -> Callable[..., Any]:
    return _LOOPS[target] if target in _LOOPS else target.py_kernels[DispatchKey.CompositeExplicitAutograd]


def _scan(combine: Callable[..., Any], init: Sequence[Any], xs: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    carried, rows = list(init), []
    for row in _rows(xs):
        found = combine(*carried, *row, *others)
        carried = list(found[: len(init)])
        rows.append(found[len(init) :])
    return carried + _stacked(rows)


def _map(function: Callable[..., Any], xs: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    return _stacked([function(*row, *others) for row in _rows(xs)])


def _rows(xs: Sequence[Any]) -> list[Any]:
    return list(zip(*(x.unbind(0) for x in xs), strict=True))


def _stacked(rows: Sequence[Sequence[Any]]) -> list[Any]:
    return [None if column[0] is None else torch.stack(column) for column in zip(*rows, strict=True)]


def _scattered(shape: Sequence[int], indices: Sequence[Any], values: Any) -> Any:
    return aten.index_put.default(values.new_zeros(shape), indices, values, True)


_LOOPS: dict[Any, Callable[..., Any]] = {higher_order.scan: _scan, higher_order.map_impl: _map}
_DENSE = {higher_order.flex_attention, higher_order.flex_attention_backward}
"""Of which torch has an implementation in plain operators."""
