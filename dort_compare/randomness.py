"""Operations that draw random numbers: which of them run, and in what order, decides what those after them draw."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import torch

RANDOM_OPERATORS = frozenset(
    ["RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"]
)
"""Those of ONNX, but for Dropout."""


def draws(target: object) -> bool:
    """Whether the target of an FX node is an operator that reads the state of torch's generators."""
    return isinstance(target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in target.tags


def may_draw(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> bool:
    """Whether an ONNX node draws random numbers: a Dropout does where it trains, which an operand tells."""
    if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]:
        trains = constants.get(node.input[2])
        return trains is None or bool(onnx.numpy_helper.to_array(trains))
    return node.op_type in RANDOM_OPERATORS
