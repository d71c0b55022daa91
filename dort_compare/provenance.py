"""The one authority on names, and on what is written into and read from ONNX metadata."""

from __future__ import annotations

import functools
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import onnx
import torch
from torch import fx

from dort_compare.node_meta import STACK_TRACE, stack_of

Phase = Literal["inference", "forward", "backward"]

FX_NODE = "dort_compare.fx_node"
ATEN_TARGET = "dort_compare.aten_target"
PHASE = "dort_compare.phase"
MODULE = "dort_compare.module"
SOURCE = "dort_compare.source"
COMPUTED_IN = "dort_compare.computed_in"
HELD_IN = "dort_compare.held_in"
"""On a value of a model that somebody has converted: the coarser dtype that it is held in."""
INSERTED = "dort_compare.inserted"
"""On a node that a comparison has added to somebody else's model."""
NAMED_ALIKE = "dort_compare.named_alike"
"""On a value or node of somebody else's model that has the metadata of ours of its name."""
OPAQUE = "dort_compare.opaque"
"""On a value that stands for a result of torch's kernel but not for its numbers: why it is not to be compared."""
GRAPH = "dort_compare.graph"
COMPILE_ID = "dort_compare.compile_id"
VERSION = "dort_compare.version"
PRODUCER = "dort_compare"
"""The ``producer_name`` of the models that our own lowering makes."""

_FRAME = re.compile(
    r'^\s*File "(?P<file>.+?)", line (?P<line>\d+)(?:.*\n(?!\s*File ")[^\S\n]*(?P<code>.+))?', re.MULTILINE
)
_TORCH = str(Path(torch.__file__).parent) + os.sep
ROOT = "L['self']"
"""Dynamo's name of a module whose ``forward`` is compiled."""
_ROOT_MODULE = re.compile(r"^L\['(self|fn)'\]|^self(?=\.|$)|^[GL](?=\[)")
"""What stands before the path proper: ``fn`` is what dynamo calls a module of torch.nn that is compiled itself."""
_IN_DICT = re.compile(r"\.__dict__\['(_modules|_parameters|_buffers)'\]")
_ESCAPED = re.compile(r"\\(.)")
_ITEM = re.compile(
    r"""(?:\._(?:modules|parameters|buffers))?\[(?:'((?:[^'\\]|\\.)+)'|"((?:[^"\\]|\\.)+)"|(\d+))\]""", re.DOTALL
)


@dataclass(frozen=True)
class Provenance:
    """Where an ONNX node or value comes from.

    ``fx_node`` holds one FX node name, or several separated by spaces after a fusion; ``module`` is the path of the
    user's module ("layers.0.mlp", "" for the root) and ``source`` is "file:line" of the user's code, "" if unknown.
    """

    fx_node: str
    aten_target: str
    phase: str
    module: str = ""
    source: str = ""

    @classmethod
    def of(cls, node: fx.Node, phase: Phase) -> Provenance:
        return cls(node.name, target_name(node), phase, module_path(node), source_line(node))

    def metadata(self) -> dict[str, str]:
        """The entries for ``metadata_props``."""
        return {
            FX_NODE: self.fx_node,
            ATEN_TARGET: self.aten_target,
            PHASE: self.phase,
            MODULE: self.module,
            SOURCE: self.source,
        }

    @classmethod
    def read(cls, metadata: Mapping[str, str]) -> Provenance | None:
        """The provenance that ``metadata_props`` hold, or None where there is none."""
        if FX_NODE not in metadata:
            return None
        keys = (FX_NODE, ATEN_TARGET, PHASE, MODULE, SOURCE)
        return cls(*(metadata.get(key, "") for key in keys))


def metadata_of(owner: onnx.ModelProto | onnx.NodeProto | onnx.ValueInfoProto) -> dict[str, str]:
    """What the ``metadata_props`` of an ONNX model, node or value hold, by key."""
    return {entry.key: entry.value for entry in owner.metadata_props}


def target_name(node: fx.Node) -> str:
    """``aten.add.Tensor`` for a call of that overload, ``operator.getitem`` for a builtin, else the FX op kind."""
    if node.op != "call_function":
        return node.op
    if isinstance(node.target, torch._ops.OpOverload):
        return str(node.target)
    target = node.target
    module = getattr(target, "__module__", "") or ""
    name = getattr(target, "__name__", str(target))
    return f"{module.removeprefix('_')}.{name}" if module else name


def described(node: fx.Node) -> str:
    """The node for a message: its name, what it calls, its source line."""
    return f"FX node {node.name} ({target_name(node)}, {source_line(node) or 'source unknown'})"


def module_path(node: fx.Node) -> str:
    """Path of the module whose forward the node comes from; a backward node points to its forward module."""
    stack = stack_of(node)
    return dotted_path(str(list(stack.values())[-1][0])) if stack else ""


def plain_source(source: str) -> str:
    """Dynamo's name of what a module holds, without the detour over ``__dict__`` that it takes where the module has a
    ``__getattr__`` of its own, as all of diffusers have."""
    return _IN_DICT.sub(r".\1", source)


@functools.lru_cache
def dotted_path(source: str) -> str:
    """Dynamo's name of a module, a parameter or an argument as ``named_modules`` and ``named_parameters`` have it."""
    source = _ROOT_MODULE.sub("", plain_source(source))
    path = _ITEM.sub(lambda item: "." + _ESCAPED.sub(r"\1", item[item.lastindex or 0]), source)
    return path.strip(".")


def source_line(node: fx.Node) -> str:
    """ "file:line" of the innermost frame outside torch, or of the innermost frame where all are torch's own."""
    return _place(node)[0]


def source_code(node: fx.Node) -> str:
    """What stands in the line that ``source_line`` names, as it was traced; "" where that is not known."""
    return _place(node)[1]


def _place(node: fx.Node) -> tuple[str, str]:
    return _innermost_frame(node.meta.get(STACK_TRACE) or "")


@functools.lru_cache
def _innermost_frame(stack_trace: str) -> tuple[str, str]:
    """ "file:line", and what stands there."""
    frames = list(_FRAME.finditer(stack_trace))
    own = [frame for frame in frames if not frame["file"].startswith(_TORCH)]
    if not frames:
        return "", ""
    frame = (own or frames)[-1]
    file = frame["file"].encode("utf-8", "backslashreplace").decode()  # the bytes of its name may be no text
    return f"{file}:{frame['line']}", (frame["code"] or "").strip()


class NameAuthority:
    """Mints the names of the ONNX values and nodes of one graph.

    A value that stands for an FX node bears its name. A value in between is called ``<fx node>.<op type>``, a constant
    ``const.<dtype>``, and from the second of a name on there is ``.<n>`` behind it: FX names are Python identifiers, so
    a name with a dot can never meet one of them.
    """

    def __init__(self) -> None:
        self._used: Counter[str] = Counter()

    def mint(self, *parts: str) -> str:
        name = ".".join(parts)
        self._used[name] += 1
        return name if self._used[name] == 1 else f"{name}.{self._used[name] - 1}"
