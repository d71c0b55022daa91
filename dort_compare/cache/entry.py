"""One file of the cache: a line with what it is, its checksum, a line of JSON about it, and the model.

Nothing in it is a pickle. What does not read as it was written, to the last bit, is no entry.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError
from onnx.external_data_helper import uses_external_data

from dort_compare.cache.folder import MAGIC
from dort_compare.dump.model_file import tensors_in
from dort_compare.provenance import Phase
from dort_compare.signature import Signature

_MAGIC = MAGIC + b"1\n"
_DIGEST = 64
_LONGEST = 2**22
"""Bytes of the line about an entry."""


class DamagedEntryError(ValueError):
    """A file that is no entry of this version, or not the one that it was written as."""


@dataclass(frozen=True)
class Entry:
    """What became of one graph: the model, a serialized ModelProto, or the names of the nodes for which it was refused,
    with the reasons. ``nodes`` counts the calls in the FX graph."""

    key: str
    phase: Phase
    nodes: int
    model: bytes = b""
    refused: Mapping[str, str] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        fields = {"key": self.key, "phase": self.phase, "nodes": self.nodes, "refused": dict(self.refused)}
        about = json.dumps(fields).encode() + b"\n"
        checksum = hashlib.sha256(about + self.model).hexdigest().encode() + b"\n"
        return _MAGIC + checksum + about + self.model

    @classmethod
    def of(cls, data: bytes) -> Entry:
        """Reads what ``to_bytes`` wrote. Raises DamagedEntryError."""
        rest = data[len(_MAGIC) + _DIGEST + 1 :]
        if data[len(_MAGIC) :][:_DIGEST] != hashlib.sha256(rest).hexdigest().encode():
            raise DamagedEntryError("its checksum is another one")
        about, _, model = rest.partition(b"\n")
        return cls(**_about(data[: len(_MAGIC)], about), model=model)

    @classmethod
    def described(cls, path: Path) -> Entry:
        """The entry in a file, without its model and unchecked. Raises DamagedEntryError, OSError."""
        with path.open("rb") as file:
            magic, _, about = (file.readline(_LONGEST) for _ in range(3))
        return cls(**_about(magic, about))

    def model_for(self, signature: Signature) -> ir.Model:
        """The model, of which no part stands in another file. Raises DamagedEntryError where it has other inputs or
        outputs than ``signature``."""
        try:
            proto = onnx.load_model_from_string(self.model)
            if any(map(uses_external_data, tensors_in(proto))):
                raise ValueError("it keeps constants in another file")
            model = ir.from_proto(proto)
        except (DecodeError, ValueError, TypeError, KeyError) as problem:
            raise DamagedEntryError(f"its model cannot be read: {problem}") from None
        if [value.name for value in model.graph.inputs] != [given.name for given in signature.inputs]:
            raise DamagedEntryError("its model takes other inputs")
        if [value.name for value in model.graph.outputs] != list(signature.computed):
            raise DamagedEntryError("its model returns other values")
        return model


def _about(magic: bytes, line: bytes) -> dict[str, Any]:
    try:
        read = json.loads(line)
        about = {name: read[name] for name in ("key", "phase", "nodes", "refused")}
        known = about["phase"] in get_args(Phase) and type(about["nodes"]) is int and type(about["key"]) is str
        known &= all(type(reason) is str for reason in about["refused"].values())
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        known = False
    if magic != _MAGIC or not known:
        raise DamagedEntryError("it is no entry of this version")
    return about
