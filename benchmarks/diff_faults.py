"""Whether ``dort-compare diff`` names a fault in a model that another exporter made.

    python benchmarks/diff_faults.py --write benchmarks/results/diff-faults.md

One graph is written by dort-compare and by torch.onnx, each in steps of its own; diff does not look at names. In one
of the two models a node is made wrong: another operator, or a result that is 5 % too large. A fault counts where the
model's output moves by more than a thousandth of its largest element. It is named first where its node is that of the
first value that diverges, or one of those that make it of paired values; alone, where nothing else is said to diverge.
The column "without faults" holds the two models against each other as they are. *Last* is the native model of
convolutions with its channels last between them (`channels_last.py`).
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import torch
from channels_last import channels_last
from fault_operators import SIMILAR
from onnx import helper
from pages import flags, page, show
from torch import nn

from dort_compare import compare
from dort_compare.models import LlamaConfig, build
from dort_compare.onnx_diff import diff

_SCALED = ("Add", "Div", "Exp", "Gemm", "LayerNormalization", "MatMul", "Mul", "ReduceMean", "ReduceSum", "Sigmoid")
_FACTOR = 1.05
_COUNTS = 1e-3

Fault = tuple[str, onnx.ModelProto]
"""The result that is wrong, and the model."""


class Residual(nn.Module):
    """Two convolutions of ``channels`` channels beside what they read."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.GroupNorm(2, channels),
            nn.GELU(),
            nn.Conv2d(channels, channels, 3, padding=1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.silu(x + self.inner(x))


def subjects() -> Iterator[tuple[str, nn.Module, tuple[torch.Tensor, ...]]]:
    """Small models, with arguments."""
    config = LlamaConfig(hidden=64, heads=4, intermediate=96, vocabulary=100)
    for part in ("attention", "decoder"):
        yield f"Llama {part}", *build(part, config, batch=2, seq=16)
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, activation="gelu")
    yield "Transformer encoder layer", layer, (torch.randn(2, 12, 32),)
    convolutions = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GELU(), nn.Conv2d(8, 4, 3, stride=2), nn.SiLU())
    head = nn.Sequential(nn.Flatten(), nn.LayerNorm(144), nn.Linear(144, 10), nn.Softmax(-1))
    yield "convolutions", nn.Sequential(convolutions, head), (torch.randn(2, 3, 16, 16),)
    pooled = nn.Sequential(nn.Conv2d(3, 8, 3), Residual(8), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    yield "residual convolutions", pooled, (torch.randn(2, 3, 16, 16),)


def exported(module: nn.Module, arguments: tuple[torch.Tensor, ...]) -> dict[str, onnx.ModelProto]:
    """The module's graph by either exporter, with values numbered in order."""
    models = {}
    for exporter in ("native", "torch"):
        torch.compiler.reset()
        with tempfile.TemporaryDirectory() as folder:
            compare(module, arguments, dump=Path(folder) / "dump", exporter=exporter)
            models[exporter] = onnx.load(Path(folder) / "dump" / "model_0.onnx")
    return models


def faults(model: onnx.ModelProto) -> Iterator[Fault]:
    """The model with one of its nodes wrong, for each node and way."""
    for place, node in enumerate(model.graph.node):
        for operator in SIMILAR.get(node.op_type, ()):
            wrong = copied(model)
            wrong.graph.node[place].op_type = operator
            yield node.output[0], wrong
        if node.op_type in _SCALED:
            wrong = copied(model)
            result, raw = node.output[0], f"{node.output[0]} before"
            wrong.graph.node[place].output[0] = raw
            wrong.graph.initializer.append(helper.make_tensor("factor", onnx.TensorProto.FLOAT, [], [_FACTOR]))
            wrong.graph.node.insert(place + 1, helper.make_node("Mul", [raw, "factor"], [result]))
            yield result, wrong


def copied(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model that may be changed."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def outputs(model: onnx.ModelProto) -> list[np.ndarray] | None:
    """What the model makes of random inputs; None where ONNX Runtime refuses it."""
    draw = np.random.default_rng(0)
    try:
        session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        feeds = {each.name: draw.standard_normal(each.shape).astype(np.float32) for each in session.get_inputs()}
        return session.run(None, feeds)
    except Exception:  # noqa: BLE001  (a fault may be of a kind that no model can have)
        return None


def counts(right: list[np.ndarray] | None, wrong: list[np.ndarray] | None) -> bool:
    """Whether an output moves; a model that does not run, or returns another shape, is no fault."""
    if right is None or wrong is None or any(one.shape != other.shape for one, other in zip(right, wrong, strict=True)):
        return False
    return any(
        not np.abs(one - other).max() <= _COUNTS * np.abs(one).max() for one, other in zip(right, wrong, strict=True)
    )


def judged(first: onnx.ModelProto, second: onnx.ModelProto) -> Counter[str]:
    """How many faults in ``second`` count, and what diff says of them."""
    found, right = Counter[str](clean=int(diff(first, second).verdict == "agree")), outputs(second)
    for result, wrong in faults(second):
        if not counts(right, outputs(wrong)):
            continue
        causes = diff(first, wrong).findings.causes
        says = [names(cause.row.pair.second, cause.nodes[1], result) for cause in causes]
        found.update(count=1, diverge=int(bool(causes)), first=int(says[:1] == [True]), alone=int(says == [True]))
    return found


def names(value: str, nodes: tuple[str, ...], result: str) -> bool:
    """Whether a cause is at the wrong node: its value, what is scaled, or one of the nodes that lead there."""
    return value in (result, f"{result} before", "factor") or any(label.endswith(f" {result}") for label in nodes)


def rows() -> Iterator[list[str]]:
    """A line of the table for each model and direction."""
    for name, module, arguments in subjects():
        models = exported(module.eval(), arguments)
        sides = [("native", "torch")]
        if any(node.op_type == "Conv" for node in models["native"].graph.node):
            models["last"] = channels_last(models["native"])
            sides += [("native", "last"), ("torch", "last")]
        for one, other in (pair for side in sides for pair in (side, side[::-1])):
            found = judged(models[one], models[other])
            clean = "agree" if found["clean"] else "diverge"
            numbers = (found[each] for each in ("count", "diverge", "first", "alone"))
            yield [name, one, other, clean, *map(str, numbers)]


def main() -> None:
    """Plants faults in either of two models, and writes the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, parents=[flags()]
    )
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    columns = ["model", "first", "second, with the fault", "without faults", "count", "diverge", "named first", "alone"]
    text = page("Faults in a model of another exporter", __doc__ or "", ("torch", "onnxruntime-gpu"), columns, rows())
    show(text, arguments.write)


if __name__ == "__main__":
    main()
