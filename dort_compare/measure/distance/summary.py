"""A tensor in a table cell: a few letters that change when the content does."""

from __future__ import annotations

import numpy as np
import torch
from onnx_array_api.reference.evaluator_yield import make_summary

WIDTH = 12  # characters a cell holds at most


def summarize(tensor: torch.Tensor) -> str:
    """Four letters for the content of `tensor`, the value itself if it is 0-d, "empty" if it holds nothing.

    Each letter is the sum over a quarter of the elements, cut to an integer modulo 26; "?" is NaN, or 1e10 and beyond.
    Equal contents give equal letters; equal letters are a hint, not a proof.
    """
    values = tensor.detach().cpu().resolve_conj().resolve_neg()
    if values.numel() == 0:
        return "empty"
    if values.is_complex():
        values = torch.view_as_real(values)
    if values.dim() == 0:
        return _scalar(values.item())
    if values.is_floating_point() and values.dtype != torch.float64:
        values = values.float()
    with np.errstate(all="ignore"):
        return str(make_summary(values.numpy()))


def _scalar(value: bool | float) -> str:
    exact = str(value)
    return exact if len(exact) <= WIDTH else f"{value:.5g}"
