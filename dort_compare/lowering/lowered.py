"""The product of a lowering: an ONNX model that computes what an FX graph computes."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from dort_compare.provenance import Phase
from dort_compare.signature import Signature


@dataclass(frozen=True)
class Lowered:
    """``model`` takes ``signature.inputs`` and returns ``signature.computed``, each under the name of its FX node."""

    model: ir.Model
    signature: Signature
    phase: Phase
