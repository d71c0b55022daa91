"""Models that hold values in another order of dimensions, and what diff pairs in them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import numpy_helper
from pairs_of_models import node_of

from dort_compare.report.diff import Diff

Model = onnx.ModelProto


def model(text: str, sizes: dict[str, int], **constants: np.ndarray) -> Model:
    parsed = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]> {text.format(**sizes)}')
    parsed.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    return parsed


def edited(original: Model, result: str, change: Callable[[onnx.NodeProto], None]) -> Model:
    changed = onnx.ModelProto()
    changed.CopyFrom(original)
    change(node_of(changed.graph, result))
    return changed


def paired(found: Diff) -> set[tuple[str, str]]:
    return {(row.pair.first.lower(), row.pair.second.lower()) for row in found.rows}


def alike(first: Model, second: Model) -> set[tuple[str, str]]:
    """The results that both models have, by names that differ in case alone."""
    made = ({name.lower() for node in each.graph.node for name in node.output} for each in (first, second))
    return {(name, name) for name in set.intersection(*made)}
