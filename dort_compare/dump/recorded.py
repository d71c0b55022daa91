"""What went into the first run of a dumped graph."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from dort_compare.dump.reader import DumpedGraph
from dort_compare.errors import DumpError


def recorded_inputs(graph: DumpedGraph) -> Mapping[str, torch.Tensor] | None:
    """The recorded inputs by name, on the CPU; None where the graph has not run.

    Raises DumpError where they cannot be read.
    """
    path = graph.folder / f"{graph.name}.inputs.safetensors"
    if path.is_symlink():
        raise DumpError(f"{path} is a link, which could lead anywhere; it is not read")
    if not path.exists():
        return None
    try:
        return load_file(path)
    except (OSError, SafetensorError, RuntimeError, ValueError) as problem:
        raise DumpError(f"{path} cannot be read: {' '.join(str(problem).split())}") from None
