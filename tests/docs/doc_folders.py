"""What stands in the folder of a reader who follows a page: the files that the page takes for granted."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import onnx
import torch
from doc_pages import ROOT, blocks, file_name, name_of
from safetensors.torch import save_file
from torch import nn

import dort_compare

START = ROOT / "docs" / "start.md"
ASSUME = {
    "README.md",
    "docs/backends.md",
    "docs/command-line.md",
    "docs/index.md",
    "docs/report.md",
    "docs/verdict.md",
}
"""The pages that speak of a model of the reader's, of its dump and of its reports."""


def prepare(page: Path, folder: Path, assumed: Path) -> dict[str, Any]:
    """Fills the folder in which a page's commands run; returns the names that its Python code knows."""
    if page.parent.name == "gallery":
        for program in page.parent.glob("*.py"):
            shutil.copy(program, folder)
    if name_of(page) not in ASSUME:
        return {}
    shutil.copytree(assumed, folder, dirs_exist_ok=True)
    return {"torch": torch, "dort_compare": dort_compare, "model": _net(), "Net": _net, "inputs": torch.randn(2, 16)}


def assume(folder: Path) -> None:
    """Writes the model of the first page, a dump and a report of it, and ONNX models for those who have some."""
    for text in blocks(START, "python"):
        if name := file_name(text):
            (folder / name).write_text(text)
    dump = folder / "dump_models"
    report = dort_compare.compare(_net(), (torch.randn(2, 16, requires_grad=True),), backward=True, dump=dump)
    for name in ("report.json", "OLD.json", "NEW.json", "NEWEST.json"):
        report.to_json(folder / name)
    for name in ("optimized.onnx", "A.onnx", "B.onnx"):
        shutil.copy(dump / "model_0.onnx", folder / name)
    inputs = onnx.load(dump / "model_0.onnx").graph.input
    sizes = {each.name: [size.dim_value for size in each.type.tensor_type.shape.dim] for each in inputs}
    save_file({name: torch.randn(size) for name, size in sizes.items()}, folder / "inputs.safetensors")


def _net() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
