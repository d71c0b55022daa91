"""Reads a dump folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import onnx

from dort_compare.dump.model_file import read_model
from dort_compare.dump.writer import MANIFEST, SCHEMA
from dort_compare.errors import DumpError


@dataclass(frozen=True)
class DumpedGraph:
    """One graph of a dump: its name ``<prefix>_<n>``, its phase, torch's id of its compilation, its files."""

    folder: Path
    name: str
    phase: str
    compile_id: str | None = None

    def fx_text(self) -> str:
        """The text of the FX graph."""
        return self._path("txt").read_text()

    def model(self) -> onnx.ModelProto:
        """The ONNX model."""
        return read_model(self._path("onnx"))

    def _path(self, ending: str) -> Path:
        return self.folder / f"{self.name}.{ending}"


def graphs_in(folder: Path) -> list[DumpedGraph]:
    """The graphs of a dump in the order in which they were compiled.

    Raises DumpError where the folder holds no manifest, one of another version, or names that leave the folder.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        entries = {str(name): (str(e["phase"]), e.get("compile_id")) for name, e in manifest["graphs"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise DumpError(f"{folder} holds no readable dump: its {MANIFEST} is missing or damaged") from None
    if manifest.get("schema") != SCHEMA:
        raise DumpError(f"{folder} is a dump of version {manifest.get('schema')}; this program reads {SCHEMA}")
    for name in entries:
        if Path(name).name != name:
            raise DumpError(f"{folder} names a graph {name!r} that is not a plain file name; it is not read")
    return [DumpedGraph(folder, name, *entry) for name, entry in entries.items()]
