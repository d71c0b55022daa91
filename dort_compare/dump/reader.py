"""Reads a dump folder."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args

import onnx
import torch
from torch import fx

from dort_compare.dump.files import is_plain_name
from dort_compare.dump.graph_file import FindTarget, read_graph
from dort_compare.dump.model_file import read_model
from dort_compare.dump.tensors import load_tensors
from dort_compare.dump.writer import ENDINGS, MANIFEST, SCHEMA
from dort_compare.errors import DumpError
from dort_compare.problems import said
from dort_compare.provenance import Phase
from dort_compare.scalars import is_number

Device = Literal["cpu", "cuda"]

_MADE_BY = "compare(..., dump=FOLDER) writes a dump"


@dataclass(frozen=True)
class DumpedGraph:
    """One graph of a dump: its name ``<prefix>_<n>``, its phase, torch's id of its compilation, its files.

    ``number`` counts the graphs of the dump, ``run`` is larger the later the run was that is recorded of a graph (None
    for one that did not run), and ``of_graph`` counts the runs of this one, from 1. ``unreadable`` says why a graph
    cannot be run again. ``input_names`` holds the caller's names of inputs, such as those of parameters, ``modules``
    the paths that a ``GraphRun`` has. ``is_piece`` says whether it is a piece of a graph that was cut.
    """

    folder: Path
    name: str
    number: int
    phase: Phase
    compile_id: str | None = None
    run: int | None = None
    of_graph: int = 1
    unreadable: str | None = None
    has_constants: bool = False
    input_names: Mapping[str, str] = field(default_factory=dict)
    modules: Mapping[str, str] = field(default_factory=dict)
    is_piece: bool = False

    def fx_text(self) -> str:
        """The text of the FX graph."""
        return self._read("txt")

    def model(self) -> onnx.ModelProto:
        """The ONNX model."""
        return read_model(self.file("onnx"))

    def graph_module(self, find_target: FindTarget, device: Device) -> fx.GraphModule:
        """The FX graph, to be run on ``device``; what a dump of a GPU has on the CPU stays there.

        Its nodes carry what torch traced, in the sizes of the first run. Raises DumpError for a graph that is damaged,
        or that calls what ``find_target`` does not know.
        """
        if self.unreadable is not None:
            raise DumpError(f"graph {self.name} of {self.folder} is there as text only: {self.unreadable}")
        text = self._read("fx.json")
        constants = load_tensors(self.file("constants.safetensors")) if self.has_constants else {}
        uses_cuda = '"device": "cuda' in text

        def place(recorded: torch.device) -> torch.device:
            return recorded if recorded.type == "cpu" and uses_cuda else torch.device(device)

        try:
            return read_graph(text, constants, find_target, place)
        except (ArithmeticError, AttributeError, LookupError, RecursionError, RuntimeError, TypeError, ValueError) as e:
            text = f"it lacks {e}" if isinstance(e, KeyError) else said(e)
            raise DumpError(f"{self.file('fx.json')} is damaged: {text}") from e

    def inputs(self, graph_module: fx.GraphModule) -> dict[str, torch.Tensor | float]:
        """What went into the recorded run, by name, in the order and on the devices of the placeholders of a graph.

        Raises DumpError where nothing was recorded, or something else than what the graph takes.
        """
        if self.run is None:
            raise DumpError(f"graph {self.name} of {self.folder} did not run when the dump was made: it has no inputs")
        path = self.file("inputs.safetensors")
        tensors = load_tensors(path)
        taken = {node.name: node.meta.get("val") for node in graph_module.graph.nodes if node.op == "placeholder"}
        if taken.keys() != tensors.keys():
            differ = ", ".join(sorted(taken.keys() ^ tensors.keys())[:3])
            raise DumpError(f"{path} does not hold what the graph takes: {differ} only on one side")
        return {name: _as_taken(path, name, tensors[name], value) for name, value in taken.items()}

    def file(self, ending: str) -> Path:
        """A file of this graph. Raises DumpError where it is missing, or is a link, which could lead anywhere."""
        path = self.folder / f"{self.name}.{ending}"
        if path.is_symlink() or not path.is_file():
            raise DumpError(f"{path} is missing, or no plain file; it is not read")
        return path

    def _read(self, ending: str) -> str:
        try:
            return self.file(ending).read_text(encoding="utf-8")
        except (OSError, ValueError) as problem:
            raise DumpError(f"{self.file(ending)} cannot be read: {said(problem)}") from None


def files_in(folder: Path) -> list[Path]:
    """The files that a dump is made of, those that need not be there among them. Raises what ``graphs_in`` raises."""
    return [folder / MANIFEST, *(folder / f"{each.name}.{ending}" for each in graphs_in(folder) for ending in ENDINGS)]


def graphs_in(folder: Path) -> list[DumpedGraph]:
    """The graphs of a dump in the order in which they were compiled.

    Raises DumpError where the folder holds no manifest, one of another version, or names that leave the folder.
    """
    manifest = manifest_in(folder)
    if manifest.get("schema") != SCHEMA:
        version = str(manifest.get("schema"))[:20]
        raise DumpError(f"{folder} is a dump of version {version}; this program reads {SCHEMA}: write it again")
    for name in manifest["graphs"]:
        if not is_plain_name(name):
            raise DumpError(f"{folder} names a graph {name!r} that is not a plain file name; it is not read")
    try:
        return [_graph(folder, name, i, entry) for i, (name, entry) in enumerate(manifest["graphs"].items())]
    except (KeyError, TypeError, AttributeError, ValueError):
        raise _damaged(folder) from None


def fallbacks_in(folder: Path) -> list[dict[str, Any]]:
    """The FX nodes that ran in eager torch, as ``DumpWriter.add_fallbacks`` was given them.

    Raises DumpError where the manifest is missing or holds something else.
    """
    found = manifest_in(folder).get("fallbacks", [])
    if not isinstance(found, list) or not all(map(_is_fallback, found)):
        raise _damaged(folder)
    return found


def _is_fallback(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and entry.get("phase") in get_args(Phase)
        and all(isinstance(text, str) for text in entry.values())
    )


def manifest_in(folder: Path) -> dict[str, Any]:
    """The manifest of a dump of any version; its "graphs" are a dictionary. Raises DumpError where there is none."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8")) if path.is_file() and not path.is_symlink() else None
    except (OSError, ValueError, RecursionError):
        raise _damaged(folder) from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("graphs"), dict):
        raise _damaged(folder)
    return manifest


def _damaged(folder: Path) -> DumpError:
    if not os.path.isdir(folder):  # noqa: PTH112  (False also for a name that is too long)
        return DumpError(f"there is no folder {folder}; {_MADE_BY}")
    return DumpError(f"{folder} holds no readable dump: its {MANIFEST} is missing or damaged; {_MADE_BY}")


def _graph(folder: Path, name: str, number: int, entry: dict[str, Any]) -> DumpedGraph:
    """Raises KeyError, TypeError, AttributeError or ValueError for an entry that the writer would not have made."""
    names, modules = dict(entry.get("input_names", {})), dict(entry.get("modules", {}))
    texts = {key: entry[key] for key in ("compile_id", "unreadable") if entry.get(key) is not None}
    run, of_graph, is_piece = entry.get("run"), entry.get("number", 1), entry.get("is_piece", False)
    all_texts = (*texts.values(), *names.values(), *modules.values())
    if not all(isinstance(text, str) for text in all_texts) or type(run) not in (int, NoneType):
        raise TypeError(name)
    if entry["phase"] not in get_args(Phase) or not isinstance(is_piece, bool) or type(of_graph) is not int:
        raise ValueError(name)
    return DumpedGraph(
        folder,
        name,
        number,
        entry["phase"],
        run=run,
        of_graph=of_graph,
        has_constants="constants" in entry,
        input_names=names,
        modules=modules,
        is_piece=is_piece,
        **texts,
    )


def _as_taken(path: Path, name: str, tensor: torch.Tensor, traced: object) -> torch.Tensor | float:
    """A recorded input as the graph takes it: a number as a number, a tensor where the traced one is."""
    if is_number(traced) and tensor.numel() == 1:
        return tensor.item()
    if not isinstance(traced, torch.Tensor) or (traced.dtype, traced.ndim) != (tensor.dtype, tensor.ndim):
        raise DumpError(f"{path} holds a {tensor.dtype} of {tensor.ndim} dimensions as {name}, the graph takes another")
    return tensor.to(traced.device)
