"""The names of ONNX Runtime's optimizers.

ONNX Runtime does not list them, and takes no offence at a name in ``disabled_optimizers`` that it does not know. But it
logs, at the level "info", the name of every graph transformer that it applies and whether that changed the graph; the
name in the log is the one by which it is switched off. A rule-based transformer is a set of rules with names of their
own, which are logged nowhere: they are listed here, from the constructors in ONNX Runtime's source, and each of them is
tested to keep the rule from being applied.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
import onnxruntime as ort

from dort_compare.errors import ExecutionError
from dort_compare.runtime.constants import apart
from dort_compare.runtime.providers import Provider

LEVELS: Mapping[str, ort.GraphOptimizationLevel] = {
    name: getattr(ort.GraphOptimizationLevel, f"ORT_ENABLE_{name.upper()}")
    for name in ("basic", "extended", "layout", "all")
    if hasattr(ort.GraphOptimizationLevel, f"ORT_ENABLE_{name.upper()}")
}
"""The levels of optimization, each with those before it."""

OFF = "off"
"""The level at which ONNX Runtime changes a model only for its providers: casts where a kernel is missing, copies."""

RULES: Mapping[str, Sequence[str]] = {
    "Level1_RuleBasedTransformer": (
        "EliminateIdentity",
        "EliminateSlice",
        "UnsqueezeElimination",
        "EliminateDropout",
        "ExpandElimination",
        "CastElimination",
        "PreShapeNodeElimination",
        "NoopElimination",
        "DivMulFusion",
        "FuseReluClip",
        "GemmSumFusion",
        "GemmTransposeFusion",
        "NotWhereFusion",
        "ConvAddFusion",
        "ConvMulFusion",
        "ConvBNFusion",
        "Pad_Fusion",
        "MatMul_BatchNormalization_Fusion",
    ),
    "Level2_RuleBasedTransformer": ("ReluQuantRewrite",),
}
"""By the name of a rule-based transformer, those of its rules that were seen at work (ONNX Runtime 1.31)."""

_APPLIED = re.compile(r"GraphTransformer (\w+) modified: ([01])")
_PROGRAM = """
import json, sys
import onnxruntime as ort
path, level, disabled, providers = json.loads(sys.argv[1])
if any("CUDA" in name for name, _ in providers):
    ort.preload_dlls()
options = ort.SessionOptions()
options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
options.log_severity_level = 1
ort.InferenceSession(path, options, [tuple(each) for each in providers], disabled_optimizers=disabled)
"""
"""Another process makes the session: ONNX Runtime logs to the standard error of its own and nowhere else."""


def optimizers_of(
    model: onnx.ModelProto, level: str, disabled: Sequence[str], providers: Sequence[Provider]
) -> list[str]:
    """What changes ``model`` at the ``level``, or ``OFF``, while ``disabled`` are off, in the order of their turns.

    A session that fails has named those before it did. Raises ExecutionError where ONNX Runtime names none at all.
    """
    small, _ = apart(model)
    chosen = ort.GraphOptimizationLevel.ORT_DISABLE_ALL if level == OFF else LEVELS[level]
    with tempfile.TemporaryDirectory(prefix="dort_compare_") as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(small.SerializeToString())
        given = json.dumps([str(path), chosen.name, list(disabled), list(providers)])
        command = [sys.executable, "-P", "-c", _PROGRAM, given]
        log = subprocess.run(command, capture_output=True, check=False).stderr.decode(errors="replace")
    applied = _APPLIED.findall(log)
    if not applied:
        said = " ".join(log.split())[-300:]
        raise ExecutionError(
            f"ONNX Runtime {ort.__version__} named none of its optimizers: {said or 'it said nothing'}"
        )
    return list(dict.fromkeys(name for name, changed in applied if changed == "1"))
