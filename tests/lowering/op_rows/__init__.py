"""The rows of the operator tests, one file a family."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch
from _pytest.mark import ParameterSet

from op_rows import (
    activations,
    arithmetic,
    attention,
    casts,
    comparison,
    convolution,
    counting,
    creation,
    distances,
    elementary,
    embedding_bag,
    extremes,
    factorizations,
    fake_quantize,
    fourier,
    grid_sampler,
    images,
    index_writes,
    indexing,
    matmul,
    normalization,
    orthogonal,
    padding,
    pooling,
    quantize,
    rearranging,
    reduction,
    scattering,
    shape,
    special,
    strided,
)
from op_rows.row import Row

__all__ = ["ROWS", "Row", "cases"]

ROWS: tuple[Row, ...] = (
    *activations.ROWS,
    *arithmetic.ROWS,
    *attention.ROWS,
    *casts.ROWS,
    *comparison.ROWS,
    *convolution.ROWS,
    *counting.ROWS,
    *creation.ROWS,
    *distances.ROWS,
    *elementary.ROWS,
    *embedding_bag.ROWS,
    *extremes.ROWS,
    *factorizations.ROWS,
    *fake_quantize.ROWS,
    *fourier.ROWS,
    *grid_sampler.ROWS,
    *images.ROWS,
    *index_writes.ROWS,
    *indexing.ROWS,
    *matmul.ROWS,
    *normalization.ROWS,
    *orthogonal.ROWS,
    *padding.ROWS,
    *pooling.ROWS,
    *quantize.ROWS,
    *rearranging.ROWS,
    *reduction.ROWS,
    *scattering.ROWS,
    *shape.ROWS,
    *special.ROWS,
    *strided.ROWS,
)

_RARE = (torch.float64, torch.float16, torch.int32, torch.uint8)


def cases(rows: Iterable[Row]) -> list[ParameterSet]:
    """The rows in each of their dtypes, for ``pytest.mark.parametrize``; those of rare dtypes are slow tests."""
    return [
        pytest.param(row, dtype, id=f"{row.target}-{dtype}", marks=[pytest.mark.slow] if dtype in _RARE else [])
        for row in rows
        for dtype in row.dtypes
    ]
