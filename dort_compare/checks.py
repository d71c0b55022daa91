"""Conditions that a graph checks: they compute nothing, but where one does not hold, the run is an error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from dort_compare.errors import CheckError

aten = torch.ops.aten
CHECK_ERRORS = aten._linalg_check_errors.default


@dataclass(frozen=True)
class Check:
    """``name`` is the FX node, and the ONNX value that says whether its condition holds; ``dtype`` is None for that of
    a plain bool."""

    name: str
    message: str
    dtype: torch.dtype | None = None

    def verify(self, value: Any) -> None:
        """Raises CheckError where ``value`` says that the condition does not hold."""
        if not value:
            raise CheckError(self.message)


@dataclass(frozen=True)
class FactorizationCheck(Check):
    """The ONNX value is what a factorization says of itself, one int32 a matrix; ``message`` names torch's function."""

    dtype: torch.dtype | None = torch.int32
    is_matrix: bool = False

    def verify(self, value: Any) -> None:
        """Raises what torch raises, most often torch.linalg.LinAlgError, where a factorization was not completed."""
        CHECK_ERRORS(value, self.message, is_matrix=self.is_matrix)


def check_of(node: fx.Node) -> Check | None:
    """The check that ``node`` is, with the message that torch's kernel would raise; None for any other node."""
    if node.target in (aten._assert_scalar.default, aten._assert_async.msg):
        return Check(node.name, str(node.args[1]))
    if node.target is CHECK_ERRORS:
        return FactorizationCheck(node.name, str(node.args[1]), is_matrix=bool(node.kwargs["is_matrix"]))
    return None


def traced_by(check: fx.Node) -> Any:
    """What torch would trace of the value of a check: a bool, or a fake tensor."""
    return check.all_input_nodes[0].meta["val"] if check.target is CHECK_ERRORS else True
