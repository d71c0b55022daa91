"""Loops that are given no condition, with one that holds written out.

The evaluator of onnx 1.23 takes a condition that is left out for one that does not hold, and goes round not once. A
body may still end its loop, as in ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from itertools import chain

import onnx
from onnx import TensorProto, helper

from dort_compare.captures import bodies, with_bodies
from dort_compare.protos import copy_of
from dort_compare.trace.schemas import plain_domain


def with_conditions(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with a condition that holds for every Loop without one, in bodies and functions too; itself where each
    has one."""
    written = (model.graph.node, *(function.node for function in model.functions))
    if not any(map(_has_none, with_bodies(chain.from_iterable(written)))):
        return model
    made = copy_of(model)
    for nodes in (made.graph.node, *(function.node for function in made.functions)):
        _add_conditions(nodes)
    return made


def _has_none(node: onnx.NodeProto) -> bool:
    return (plain_domain(node.domain), node.op_type) == ("", "Loop") and not any(node.input[1:2])


def _add_conditions(nodes: MutableSequence[onnx.NodeProto]) -> None:
    for node in list(nodes):
        for body in bodies(node):
            _add_conditions(body.node)
        if _has_none(node):
            name = "\n".join(["condition of", *node.output])
            node.input[1:2] = [name]
            always = helper.make_tensor(name, TensorProto.BOOL, [], [True])
            nodes.insert(0, helper.make_node("Constant", [], [name], value=always))
