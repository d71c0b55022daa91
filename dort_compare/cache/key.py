"""The keys of entries: digests of everything that a model is made of.

A key stands for the FX graph as the lowering reads it, for what torch knows of symbolic sizes, and for the software.
What cannot be put in words that mean the same in every process has no key.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import onnx
import onnx_ir
import onnxruntime as ort
import onnxscript
import torch
from torch import fx

from dort_compare.cache.words import Words, sizes_of, words_of
from dort_compare.provenance import Phase
from dort_compare.signature import Signature


def key_of(graph_module: fx.GraphModule, signature: Signature, phase: Phase, chosen: Words) -> str:
    """64 hex digits for a graph, with its signature, that is compiled as ``chosen``. Raises UnkeyedError."""
    torch_state = str(torch.get_default_dtype())
    computed = tuple(signature.computed)  # it depends on strides of the first sizes
    graph = words_of(graph_module, phase), sizes_of(graph_module), computed
    return hashlib.sha256(repr((software(), torch_state, chosen, phase, graph)).encode()).hexdigest()


@functools.cache
def software() -> Words:
    """The versions of all that takes part, and a digest of this package's own source."""
    versions = (torch, onnx, onnx_ir, onnxscript, ort)
    source = hashlib.sha256()
    root = Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        source.update(repr((path.relative_to(root).as_posix(), path.read_bytes())).encode())
    builds = (torch.version.git_version, ort.get_build_info())
    return (*(each.__version__ for each in versions), *builds, source.hexdigest())
