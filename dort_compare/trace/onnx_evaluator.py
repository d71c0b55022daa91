"""The ONNX reference evaluator in the place of ONNX Runtime, for when ONNX Runtime is the suspect."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import torch
from onnx_array_api.reference import ExtendedReferenceEvaluator
from onnx_ir.tensor_adapters import from_torch_dtype, to_torch_dtype

from dort_compare.errors import ExecutionError, one_line
from dort_compare.runtime.binding import dense
from dort_compare.trace.loops import with_conditions

_AS_BYTES = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32, 8: torch.uint64}


class EvaluatorSession:
    """Runs a model on numpy, one node after the other, on the CPU; beside ONNX's operators, some of ONNX Runtime's.

    Raises ExecutionError where the evaluator lacks an operator or fails.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._evaluator = _told(lambda: ExtendedReferenceEvaluator(with_conditions(model)))

    def run(self, feeds: Mapping[str, torch.Tensor], outputs: Mapping[str, torch.device]) -> list[torch.Tensor]:
        """The values of ``outputs``, each on the device named beside it."""
        arrays = {name: as_numpy(tensor) for name, tensor in feeds.items()}
        found = _told(lambda: self._evaluator.run(list(outputs), arrays))
        return [from_numpy(value).to(device) for value, device in zip(found, outputs.values(), strict=True)]


def as_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """A tensor as an array of the same bytes; bfloat16, which numpy lacks, in the dtype of ml_dtypes."""
    plain = dense(tensor.detach().cpu())
    dtype = ir.DataType(from_torch_dtype(plain.dtype)).numpy()
    return plain.view(_AS_BYTES[plain.element_size()]).numpy().view(dtype)


def from_numpy(array: Any) -> torch.Tensor:
    """An array as a tensor of the same bytes."""
    dense = np.array(array)
    dtype = to_torch_dtype(ir.DataType.from_numpy(dense.dtype))
    return torch.from_numpy(dense.view(f"u{dense.itemsize}")).view(dtype)


def _told(call: Any) -> Any:
    """Numpy's warnings are no news here, and whatever it raises is an error of the model's."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return call()
    except Exception as problem:  # noqa: BLE001  (the evaluator and numpy raise errors of every kind)
        raise ExecutionError(f"the ONNX reference evaluator failed: {one_line(problem)}") from None
