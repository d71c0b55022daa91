"""ONNX files of a dump: large constants stand beside them, in ``<name>.onnx.data`` and nowhere else."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf import json_format, text_format
from google.protobuf.message import DecodeError, Message
from onnx import external_data_helper

from dort_compare.dump.files import NewFiles
from dort_compare.errors import DumpError
from dort_compare.problems import said

INLINE = 2**30
"""Bytes of constants that an ONNX file may hold itself; a protobuf ends at twice as many."""
DATA = ".data"
_WHOLE = "name a whole ONNX file, as onnx.save writes it"
_UNREADABLE = (
    *(DecodeError, json_format.ParseError, text_format.ParseError, onnx.parser.ParseError),
    onnx.checker.ValidationError,
)
"""What onnx raises for a file; the ending says in which of its forms that is."""


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


def files_of(path: Path) -> Iterator[Path]:
    """The file of a model, and those beside it that it names for its constants, if it can be read."""
    yield path
    with suppress(OSError, ValueError, *_UNREADABLE):
        tensors = tensors_in(onnx.load(path, load_external_data=False))
        outside = filter(external_data_helper.uses_external_data, tensors)
        names = {Path(external_data_helper.ExternalDataInfo(tensor).location).name for tensor in outside}
        yield from (path.with_name(name) for name in names if name)


def read_model(path: Path, *, beside: bool = False) -> onnx.ModelProto:
    """The model with its constants.

    Raises DumpError where it cannot be read, a constant is not what its shape says, or it keeps constants in another
    file than ``<path>.data`` or, where they may stand ``beside`` it, in another folder.
    """
    try:
        model = onnx.load(path, load_external_data=False)
        if not model.opset_import:
            raise ValueError(f"it is no ONNX model; {_WHOLE}")
        for tensor in tensors_in(model):
            if external_data_helper.uses_external_data(tensor):
                _load(tensor, path, beside)
            _refuse_damaged(tensor)
    except (OSError, ValueError, *_UNREADABLE) as problem:
        raise DumpError(f"{path} cannot be read: {said(problem)}{_mend(problem)}") from problem
    return model


def _mend(problem: Exception) -> str:
    if isinstance(problem, _UNREADABLE):
        return f"; {_WHOLE}"
    return "; name an ONNX file" if isinstance(problem, OSError) and problem.strerror else ""


def _load(tensor: onnx.TensorProto, path: Path, beside: bool) -> None:
    location = _outside(tensor).location
    data = path.parent / (Path(location).name if beside else path.name + DATA)
    if location == data.name and not data.exists() and not data.is_symlink():
        raise FileNotFoundError(f"{data.name}, which holds its constants, is missing")
    if location != data.name or data.is_symlink() or not data.is_file():
        known = "files beside it" if beside else data.name
        raise DumpError(f"{path} keeps constants in {location!r}; they may stand in {known} only, so it is not read")
    external_data_helper.load_external_data_for_tensor(tensor, str(path.parent))
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]


def _outside(tensor: onnx.TensorProto) -> external_data_helper.ExternalDataInfo:
    try:
        return external_data_helper.ExternalDataInfo(tensor)
    except ValueError as problem:
        raise ValueError(f"constant {tensor.name!r} lies at no place of a file: {problem}") from None


def _refuse_damaged(tensor: onnx.TensorProto) -> None:
    """Raises ValueError where a constant has not the elements that its type and shape ask for."""
    shape = "x".join(map(str, tensor.dims)) or "a number"
    what = f"constant {tensor.name!r}" if tensor.name else "a constant"
    if min(tensor.dims, default=0) < 0:
        raise ValueError(f"{what} has the shape {shape}: no dimension may be negative")
    elements, dtype = math.prod(tensor.dims), ir.DataType(tensor.data_type)
    if dtype == ir.DataType.UNDEFINED:
        raise ValueError(f"{what} is of no type")
    if dtype == ir.DataType.STRING:
        return
    takes = -(-elements * dtype.bitwidth // 8)
    if tensor.raw_data:
        if len(tensor.raw_data) != takes:
            raise ValueError(f"{what}, {dtype.name} {shape}, takes {takes} bytes and has {len(tensor.raw_data)}")
        return
    packed = takes if dtype.bitwidth < 8 else 2 * elements if dtype.name.startswith("COMPLEX") else elements
    held = len(getattr(tensor, onnx.helper.tensor_dtype_to_field(tensor.data_type)))
    if held != packed:
        raise ValueError(f"{what}, {dtype.name} {shape}, takes {packed} elements and has {held}")


def tensors_in(owner: Message) -> Iterator[onnx.TensorProto]:
    """Every tensor, wherever it stands: in graphs within nodes, functions, sparse constants."""
    for field, value in owner.ListFields():
        if field.message_type is None:
            continue
        for each in (value,) if isinstance(value, Message) else value:
            if isinstance(each, onnx.TensorProto):
                yield each
            else:
                yield from tensors_in(each)
