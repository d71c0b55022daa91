"""An ONNX model with its nodes in an order in which they can run: ONNX Runtime runs models that have none."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

import onnx

from dort_compare.captures import bodies, reads_of
from dort_compare.protos import copy_of, replace_nodes

Graph = onnx.GraphProto | onnx.FunctionProto


def in_order(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, sorted where it is not, nested graphs and functions too; one that goes in a circle stays as it is."""
    if all(map(_is_sorted, (model.graph, *model.functions))):
        return model
    copy = copy_of(model)
    for graph in (copy.graph, *copy.functions):
        _sort(graph)
    return copy


def _is_sorted(graph: Graph) -> bool:
    if not all(_is_sorted(body) for node in graph.node for body in bodies(node)):
        return False
    return all(made < i for i, read in enumerate(_reads(graph.node)) for made in read)


def _sort(graph: Graph) -> None:
    for node in graph.node:
        for body in bodies(node):
            _sort(body)
    order = list(_order(graph.node))
    if len(order) == len(graph.node):
        nodes = [graph.node[i] for i in order]
        replace_nodes(graph, nodes)


def _order(nodes: Sequence[onnx.NodeProto]) -> Iterator[int]:
    """Each node after those that it reads, otherwise as before; those of a circle are left out."""
    reads = _reads(nodes)
    readers: list[list[int]] = [[] for _ in nodes]
    for i, read in enumerate(reads):
        for made in read:
            readers[made].append(i)
    missing = [len(read) for read in reads]
    ready = [i for i, number in enumerate(missing) if not number]
    while ready:
        done = heapq.heappop(ready)
        yield done
        for i in readers[done]:
            missing[i] -= 1
            if not missing[i]:
                heapq.heappush(ready, i)


def _reads(nodes: Sequence[onnx.NodeProto]) -> list[set[int]]:
    """By node, the nodes that make what it reads."""
    made = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    return [{made[name] for name in reads_of(node) if name in made} for node in nodes]
