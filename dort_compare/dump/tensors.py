"""Tensors in safetensors files, with the layout that they had in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch._subclasses.fake_tensor import unset_fake_temporarily

from dort_compare.dtypes import in_parts
from dort_compare.errors import DumpError
from dort_compare.files import shared
from dort_compare.problems import said

_STRIDES = "strides"
_COMPLEX = "complex"
"""The names of tensors of which the file holds the real and imaginary parts; it has no dtype for the larger ones."""
_SPREAD = 1024
"""How many elements of memory an element may take: reading a small file must not fill the memory."""


def save_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Writes tensors of any device, dense, and beside them the strides of those that are not contiguous.

    Strides are left out where elements overlap (but for expanded dimensions) or lie very far apart.
    """
    with unset_fake_temporarily():  # AOTAutograd compiles under its fake mode, constants are real
        dense = {name: in_parts(tensor.detach().cpu()).contiguous().clone() for name, tensor in tensors.items()}
    strides = {
        name: list(tensor.stride())
        for name, tensor in tensors.items()
        if not tensor.is_contiguous() and _is_restorable(tensor.shape, tensor.stride())
    }
    told = {_STRIDES: strides, _COMPLEX: [name for name, tensor in tensors.items() if tensor.is_complex()]}
    save_file(dense, path, metadata={key: json.dumps(each) for key, each in told.items() if each} or None)
    shared(path)


def load_tensors(path: Path) -> dict[str, torch.Tensor]:
    """What ``save_tensors`` wrote, on the CPU. Raises DumpError where the file is no such file."""
    try:
        with safe_open(path, "pt") as file:
            told = file.metadata() or {}
            strides, halves = (json.loads(told.get(key, "{}")) for key in (_STRIDES, _COMPLEX))
            names: list[str] = list(file.keys())
            read = {name: file.get_tensor(name) for name in names}
            whole = {name: torch.view_as_complex(each) if name in halves else each for name, each in read.items()}
            return {name: _checked(each, strides.get(name)) for name, each in whole.items()}
    except (OSError, SafetensorError, RecursionError, RuntimeError, ValueError, TypeError, AttributeError) as problem:
        raise DumpError(f"{path} cannot be read: {said(problem)}") from None


def _checked(tensor: torch.Tensor, stride: list[int] | None) -> torch.Tensor:
    if tensor.dtype == torch.bool and (tensor.view(torch.uint8) > 1).any():
        raise ValueError("a boolean is neither 0 nor 1")
    return tensor if stride is None else _laid_out(tensor, stride)


def _laid_out(tensor: torch.Tensor, stride: list[int]) -> torch.Tensor:
    if not all(type(step) is int and step >= 0 for step in stride) or len(stride) != tensor.ndim:
        raise ValueError(f"{str(stride)[:80]} are no strides")
    if not _is_restorable(tensor.shape, stride):
        raise ValueError(f"strides {str(stride)[:80]} do not fit the shape {list(tensor.shape)}")
    once = tensor
    for dim, step in enumerate(stride):
        once = once if step else once.narrow(dim, 0, 1)
    laid_out = torch.empty_strided(once.shape, stride, dtype=tensor.dtype).copy_(once)
    return laid_out.expand(tensor.shape)


def _is_restorable(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether every element has memory of its own, but for expanded dimensions, and not too much in between."""
    elements = memory = 1
    for step, n in sorted(zip(stride, shape, strict=True)):
        if n == 0:
            return False
        if step == 0 or n == 1:
            continue
        if step < memory:
            return False
        memory += (n - 1) * step
        elements *= n
    return memory <= _SPREAD * elements
