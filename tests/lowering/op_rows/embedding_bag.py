"""Bags of rows."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from op_rows.row import FLOATS, SUM, Row, Sample, case, new

aten = torch.ops.aten
INDICES = torch.tensor([0, 1, 2, 1, 4, 4])
OFFSETS = torch.tensor([0, 2, 2, 5])
ENDED = torch.tensor([0, 2, 2, 6])
"""With the end of the last bag, the second bag empty."""


def bags(dtype: torch.dtype) -> Iterable[Sample]:
    table, weights = new(dtype, 5, 3), new(dtype, 6)
    for padding in (-1, 1):
        for mode in (0, 1, 2):
            yield case(table, INDICES, OFFSETS, False, mode, False, None, False, padding)
        yield case(table, INDICES, ENDED, False, 0, False, weights, True, padding)
        yield from (case(table, INDICES, ENDED, False, mode, False, None, True, padding) for mode in (1, 2))
    yield case(table, INDICES.int(), OFFSETS.int())
    yield from largest(dtype)


def largest(dtype: torch.dtype) -> Iterable[Sample]:
    """Equal elements, bags of nothing but padding, and what is not finite at the beginning of a bag and within."""
    yield case(torch.randint(3, (5, 40)).to(dtype), INDICES, OFFSETS, False, 2)
    yield case(new(dtype, 5, 3), torch.tensor([1, 1, 0, 1, 2, 1]), OFFSETS, False, 2, False, None, False, 1)
    yield case(new(dtype, 5, 3), INDICES.int(), OFFSETS.int(), False, 2)
    table = new(dtype, 5, 6)
    for end, place in ((torch.nan, 0), (torch.nan, 1), (torch.nan, 2), (-torch.inf, 4), (torch.inf, 4)):
        table[place, place % 3] = end
    for padding in (-1, 1):
        yield case(table, INDICES, OFFSETS, False, 2, False, None, False, padding)
    yield case(torch.full((5, 2), -torch.inf, dtype=dtype), INDICES, OFFSETS, True, 2)
    yield case(torch.full((5, 2), torch.nan, dtype=dtype), INDICES, OFFSETS, False, 2)


def table_gradients(dtype: torch.dtype) -> Iterable[Sample]:
    for (table, indices, offsets, *rest), _ in bags(dtype):
        scaled, mode, _, weights, _, padding = (*rest, *(False, 0, False, None, False, -1)[len(rest) :])
        output, *saved = aten._embedding_bag.default(table, indices, offsets, *rest)
        yield case(new(dtype, *output.shape), indices, offsets, *saved, 5, scaled, mode, False, weights, padding)


def weight_gradients(dtype: torch.dtype) -> Iterable[Sample]:
    for (table, indices, offsets, *rest), _ in bags(dtype):
        _, mode, _, _, _, padding = (*rest, *(False, 0, False, None, False, -1)[len(rest) :])
        output, offset2bag, *_ = aten._embedding_bag.default(table, indices, offsets, *rest)
        if mode == 0:
            yield case(new(dtype, *output.shape), table, indices, offsets, offset2bag, mode, padding)


def open_bags(dtype: torch.dtype) -> Iterable[Sample]:
    """Those without the end of the last bag, for which torch counts one bag more."""
    yield from (case(*args) for args, _ in bags(dtype) if args[2] is not ENDED)


FORWARD = (torch.float32, torch.float64, torch.float16)
"""torch's tracing and its CPU kernel disagree on the shape of a result in bfloat16."""

ROWS = (
    Row(aten._embedding_bag.default, (), bags, FORWARD, SUM),
    Row(aten._embedding_bag_forward_only.default, (), open_bags, FORWARD, SUM),
    Row(aten._embedding_bag_backward.default, (), table_gradients, FLOATS, SUM),
    Row(aten._embedding_bag_per_sample_weights_backward.default, (), weight_gradients, FLOATS, SUM),
)
