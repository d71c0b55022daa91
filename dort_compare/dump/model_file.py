"""ONNX files of a dump: large constants stand beside them, in ``<name>.onnx.data`` and nowhere else."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import external_data_helper

from dort_compare.dump.files import NewFiles
from dort_compare.errors import DumpError

INLINE = 2**30
"""Bytes of constants that an ONNX file may hold itself; a protobuf ends at twice as many."""
DATA = ".data"


def add_model(files: NewFiles, name: str, model: ir.Model) -> dict[str, str]:
    """Adds ``<name>.onnx``, and what stands beside it; returns the files' names by what they hold."""
    file = f"{name}.onnx"
    constants = (value.const_value for value in model.graph.initializers.values())
    if sum(constant.nbytes for constant in constants if constant is not None) <= INLINE:
        files.add(file, lambda path: path.write_bytes(ir.to_proto(model).SerializeToString()))
        return {"onnx": file}
    with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=files.folder) as stage:
        written = Path(stage) / file
        ir.save(model, written, external_data=file + DATA)
        for each in (file + DATA, file):
            files.move(written.with_name(each))
    return {"onnx": file, "data": file + DATA}


def read_model(path: Path) -> onnx.ModelProto:
    """The model with its constants.

    Raises DumpError where it cannot be read, or keeps constants in another file than ``<path>.data``.
    """
    return _read(path, _check_beside)


def read_any_model(path: Path) -> onnx.ModelProto:
    """The model of any exporter with its constants, which may stand in any file of its folder.

    Raises DumpError where it cannot be read, is none, or keeps constants outside its folder.
    """
    model = _read(path, _check_inside)
    if not model.HasField("graph"):
        raise DumpError(f"{path} holds no graph: it is no ONNX model; give one")
    return model


def _read(path: Path, check: Callable[[Path, str], None]) -> onnx.ModelProto:
    try:
        model = onnx.load(path, format="protobuf", load_external_data=False)
        for tensor in _tensors(model.graph):
            if external_data_helper.uses_external_data(tensor):
                check(path, external_data_helper.ExternalDataInfo(tensor).location)
                _load(tensor, path)
    except (OSError, ValueError, TypeError, DecodeError, onnx.checker.ValidationError) as problem:
        raise DumpError(f"{path} cannot be read: {' '.join(str(problem).split())}") from None
    return model


def _check_beside(path: Path, location: str) -> None:
    data = path.with_name(path.name + DATA)
    if location != data.name or data.is_symlink():
        raise DumpError(f"{path} keeps constants in {location!r}; a dump has them in {data.name}, so it is not read")


def _check_inside(path: Path, location: str) -> None:
    folder = path.parent.resolve()
    data = folder / location
    if folder not in data.resolve().parents or data.is_symlink():
        raise DumpError(f"{path} keeps constants in {location!r}, outside its folder, so it is not read")


def _load(tensor: onnx.TensorProto, path: Path) -> None:
    external_data_helper.load_external_data_for_tensor(tensor, str(path.parent))
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield attribute.t
            yield from attribute.tensors
            for nested in (attribute.g, *attribute.graphs):
                yield from _tensors(nested)
