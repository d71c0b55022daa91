"""Writes a dump: ``manifest.json`` and, of each graph, ``<prefix>_<n>`` with these endings.

``.onnx`` is the model (large constants stand in ``.onnx.data``), ``.txt`` the FX graph to read, ``.fx.json`` the FX
graph to run again with ``.constants.safetensors``, and ``.inputs.safetensors`` what went into one of its runs.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import onnx_ir as ir
import onnxruntime as ort
import torch
from torch import fx

from dort_compare.dump.files import NewFiles, write_whole
from dort_compare.dump.graph_file import graph_text
from dort_compare.dump.model_file import DATA, add_model
from dort_compare.dump.tensors import save_tensors
from dort_compare.errors import DumpError, UnsupportedGraphError
from dort_compare.provenance import Phase
from dort_compare.scalars import as_tensor

MANIFEST = "manifest.json"
ENDINGS = ("onnx", f"onnx{DATA}", "txt", "fx.json", "constants.safetensors", "inputs.safetensors")
SCHEMA = 2
_CHANGING = threading.RLock()
_PROCESS = uuid.uuid4().hex
"""Tells a dump that this process has begun, and may go on with, from somebody else's."""


class DumpWriter:
    """Adds graphs, in the order in which they are compiled, to the dump in one folder.

    The manifest names the files that are complete; it is rewritten, whole, after each of them. Several writers of one
    process may share a folder: torch.compile makes a backend for every graph between two graph breaks.
    """

    def __init__(self, folder: Path, prefix: str) -> None:
        self.folder = folder
        self.prefix = prefix

    @classmethod
    def in_folder(cls, folder: Path, prefix: str = "model") -> DumpWriter:
        """Begins a dump, or goes on with the one that this process began there.

        Raises DumpError where the folder cannot be written or holds a dump of another process.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise DumpError(f"cannot make the dump folder {folder}: {problem.strerror}; choose another one") from None
        writer = cls(folder, prefix)
        with _CHANGING:
            if (folder / MANIFEST).exists():
                writer._read_manifest()
            else:
                writer._write_manifest({"schema": SCHEMA, "process": _PROCESS, "versions": _versions(), "graphs": {}})
        return writer

    def add_graph(
        self,
        model: ir.Model,
        graph_module: fx.GraphModule,
        phase: Phase,
        compile_id: str | None = None,
        *,
        is_piece: bool = False,
    ) -> str:
        """Writes the model and the FX graph; returns the graph's name in the dump, ``<prefix>_<n>``.

        ``is_piece`` says of a piece of a graph that was cut that it is one.
        A graph that cannot be written so that it can be run again is only written as text; the manifest says why.
        """
        text = graph_module.print_readable(print_output=False)
        with self._changed() as (manifest, files):
            graphs = manifest["graphs"]
            name = f"{self.prefix}_{sum(key.rpartition('_')[0] == self.prefix for key in graphs)}"
            written = add_model(files, name, model)
            files.add(f"{name}.txt", lambda path: path.write_text(text, encoding="utf-8", errors="backslashreplace"))
            written |= _add_graph(files, name, graph_module)
            graphs[name] = {"phase": phase, "compile_id": compile_id, **written, "fx": f"{name}.txt"}
            graphs[name] |= {"is_piece": True} if is_piece else {}
        return name

    def add_inputs(
        self, name: str, inputs: Mapping[str, torch.Tensor | float], order: int = 0, number: int = 1
    ) -> None:
        """Writes the inputs of a run of a graph, in the place of those of an earlier one; a number becomes a 0-d int64,
        float64 or bool tensor.

        ``order``, in the manifest ``run``, is larger for runs of any graph that were later; ``number`` counts the runs
        of this one, from 1.
        """
        file = f"{name}.inputs.safetensors"
        tensors = {key: as_tensor(value) for key, value in inputs.items()}
        with self._changed() as (manifest, files):
            entry = manifest["graphs"][name]
            if "inputs" in entry:
                write_whole(self.folder / file, lambda path: save_tensors(path, tensors), replace=True)
            else:
                files.add(file, lambda path: save_tensors(path, tensors))
            entry |= {"inputs": file, "run": order, "number": number}

    def add_names(self, name: str, inputs: Mapping[str, str], modules: Mapping[str, str]) -> None:
        """Writes the caller's names of inputs of a graph, such as those of parameters, and the paths of ``modules`` by
        FX node that the nodes of the graph do not know themselves."""
        with self._changed() as (manifest, _):
            manifest["graphs"][name] |= {"input_names": dict(inputs), "modules": dict(modules)}

    def add_fallbacks(self, fallbacks: Sequence[Mapping[str, str]]) -> None:
        """Writes which FX nodes run in eager torch, and why: the strings that ``Fallback.to_json`` makes of each."""
        with self._changed() as (manifest, _):
            manifest.setdefault("fallbacks", []).extend(dict(each) for each in fallbacks)

    @contextmanager
    def _changed(self) -> Iterator[tuple[dict[str, Any], NewFiles]]:
        """The manifest, which is written when the block ends, and a way to add files, which go if it fails.

        One thread at a time, so that the manifest names what all of them have added.
        """
        with _CHANGING:
            manifest = self._read_manifest()
            with NewFiles.in_folder(self.folder) as files:
                yield manifest, files
                self._write_manifest(manifest)

    def _read_manifest(self) -> dict[str, Any]:
        try:
            manifest: dict[str, Any] = json.loads((self.folder / MANIFEST).read_text(encoding="utf-8"))
            if manifest["process"] == _PROCESS:
                return manifest
        except (OSError, ValueError, KeyError, TypeError):
            raise DumpError(f"{self.folder / MANIFEST} is missing or damaged; choose another folder") from None
        raise DumpError(f"{self.folder} holds a dump already; remove it or choose another folder")

    def _write_manifest(self, manifest: dict[str, Any]) -> None:
        text = json.dumps(manifest, indent=1)
        write_whole(self.folder / MANIFEST, lambda path: path.write_text(text, encoding="utf-8"), replace=True)


def _add_graph(files: NewFiles, name: str, graph_module: fx.GraphModule) -> dict[str, str]:
    """Adds the graph to be run again; returns the files' names by what they hold, or why there are none."""
    try:
        text, constants = graph_text(graph_module)
    except UnsupportedGraphError as problem:
        return {"unreadable": str(problem)}
    files.add(f"{name}.fx.json", lambda path: path.write_text(text, encoding="utf-8"))
    written = {"graph": f"{name}.fx.json"}
    if constants:
        written["constants"] = f"{name}.constants.safetensors"
        files.add(written["constants"], lambda path: save_tensors(path, constants))
    return written


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("dort-compare", "torch", "onnx")} | {"onnxruntime": ort.__version__}
