"""Which values of an ONNX model stand for the nodes of an FX graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class StandIns:
    """The ONNX values that stand for FX nodes, and how a model makes and holds them.

    ``names`` gives, by FX node, the name of the ONNX value; those of ``opaque`` FX nodes are not torch's numbers, and
    are fed to no one. ``merged`` are the FX nodes whose ONNX nodes took the place of other ones. ``held`` gives, by FX
    node, the coarser dtypes that a converted model holds values in, in which others read them.
    """

    names: Mapping[str, str]
    opaque: frozenset[str] = frozenset()
    merged: frozenset[str] = frozenset()
    held: Mapping[str, torch.dtype] = field(default_factory=dict)
