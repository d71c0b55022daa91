"""Nodes put behind values of a model that make them what they are to be compared as, and back for what reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain

import onnx

from dort_compare import provenance
from dort_compare.align.tensor_types import Type
from dort_compare.captures import rename_made, rename_read
from dort_compare.protos import replace_nodes

Step = Callable[[str, str, Type], onnx.NodeProto]
"""Makes a node of the name that it reads, the one that it makes, and the type of that."""


@dataclass(frozen=True)
class Change:
    """A value ``name`` of the type ``given`` that is to be of the type ``wanted``.

    ``source`` is another value of that type of which the model makes ``name`` already, None where ``name`` itself is
    what is to change.
    """

    name: str
    given: Type
    wanted: Type
    source: str | None = None

    def made(self, mark: str) -> str:
        """What the nodes of the model make."""
        return self.source or f"{self.name}/{mark}"

    def read(self, mark: str) -> str:
        """What they read."""
        return f"{self.name}/{mark}/again"


def inserted(node: onnx.NodeProto) -> onnx.NodeProto:
    """A node that says that it is ours."""
    node.metadata_props.add(key=provenance.INSERTED)
    return node


def there_and_back(model: onnx.ModelProto, changes: Iterable[Change], step: Step, mark: str) -> None:
    """Changes values in place; ``mark`` tells what the nodes of the model go on with from the values as changed."""
    by_source = {change.source or change.name: change for change in changes}
    known = {change.name for change in by_source.values() if change.source}
    made = {name: change.made(mark) for name, change in by_source.items()}
    read = {name: change.read(mark) for name, change in by_source.items()}
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        if known.intersection(node.output):
            continue
        changed = [by_source[name] for name in node.output if name in by_source]
        rename_read(node, read)
        rename_made(node, made)
        steps = ((step(c.made(mark), c.name, c.wanted), step(c.name, c.read(mark), c.given)) for c in changed)
        nodes += [node, *map(inserted, chain.from_iterable(steps))]
    replace_nodes(model.graph, nodes)
    declared = {value.name: value for value in (*model.graph.value_info, *model.graph.output)}
    for change in by_source.values():
        for each in {change.made(mark), change.read(mark)} - declared.keys():
            model.graph.value_info.add(name=each).type.tensor_type.CopyFrom(change.given)
        declared[change.name].type.tensor_type.CopyFrom(change.wanted)  # last: it may be the message that is given
