"""Copies of the nodes of one graph in another."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from torch import fx


def put_in_place(call: fx.Node, source: fx.GraphModule, given: Mapping[fx.Node, Any]) -> list[fx.Node]:
    """Copies the nodes of ``source`` before ``call``, lets the readers of its results read theirs, and takes it out.

    ``given`` has, by placeholder of ``source``, what stands for it; ``source`` returns what ``call`` does. Returns the
    copies.
    """
    graph, values = call.graph, dict(given)
    with graph.inserting_before(call):
        results: Any = graph.graph_copy(source.graph, values)
    copies = [copy for node, copy in values.items() if node not in given]
    for copy in copies:
        if copy.op == "get_attr":
            _hold(copy, operator.attrgetter(str(copy.target))(source))
    read = call.all_input_nodes
    _hand_out(call, results)
    for node in read:
        if node.op == "get_attr" and not node.users:
            graph.erase_node(node)
    return copies


def _hand_out(node: fx.Node, result: Any) -> None:
    """Lets what reads a node, the elements of a tuple, read ``result`` instead, and takes the node out."""
    for reader in list(node.users):
        if reader.target is operator.getitem and isinstance(result, Sequence):
            _hand_out(reader, operator.getitem(result, reader.args[1]))
        else:
            reader.args = fx.map_arg(reader.args, lambda read: result if read is node else read)
            reader.kwargs = fx.map_arg(reader.kwargs, lambda read: result if read is node else read)
    node.graph.erase_node(node)


def _hold(copy: fx.Node, held: object) -> None:
    """Has the graph of a copied ``get_attr`` hold what that reads, under the name of the node, which is new there."""
    copy.target = copy.name
    setattr(copy.graph.owning_module, copy.name, held)
