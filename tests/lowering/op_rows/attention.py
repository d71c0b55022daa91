"""Softmax and attention."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from op_rows.row import FLOATS, MATMUL, SUM, Row, Sample, case, new

aten = torch.ops.aten
prims = torch.ops.prims


def softmax_inputs(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, 2, 3, 5), dim, False) for dim in (0, 1, -1))
    yield case(new(dtype), 0, False)
    yield case(new(dtype, 0, 2), 1, False)
    yield case(torch.tensor([[0.0, -torch.inf], [-torch.inf, -torch.inf], [torch.inf, 0.0]], dtype=dtype), 1, False)
    yield case(new(dtype, 2, 100, low=-1000, high=1000), 1, False)


def softmax_gradients(dtype: torch.dtype) -> Iterable[Sample]:
    for (x, dim, _), _ in softmax_inputs(dtype):
        y = aten._softmax.default(x, dim, False)
        yield case(torch.randn_like(y), y, dim, dtype)


def attention_inputs(dtype: torch.dtype) -> Iterable[Sample]:
    for batch, heads, length, other, width in ((2, 4, 6, 6, 8), (1, 2, 3, 7, 4), (1, 2, 7, 3, 4), (2, 1, 1, 5, 16)):
        query, key = torch.randn(batch, heads, length, width), torch.randn(batch, heads, other, width)
        qkv = [x.to(dtype) for x in (query, key, torch.randn_like(key))]
        yield case(*qkv)
        yield case(*qkv, scale=0.3)
        yield case(*qkv, 0.0, True)
        for shape in ((batch, heads, length, other), (1, 1, length, other), (length, other)):
            mask = torch.randn(shape).to(dtype)
            yield case(*qkv, attn_mask=mask)
            hidden = mask.masked_fill(torch.ones(length, other, dtype=torch.bool).triu(1), -torch.inf)
            yield case(*qkv, attn_mask=hidden)
            hidden = hidden.clone()
            hidden[..., 0, :] = -torch.inf
            yield case(*qkv, attn_mask=hidden)
    grouped = [torch.randn(2, heads, 6, 8).to(dtype) for heads in (4, 2, 2)]
    yield case(*grouped)
    yield case(*grouped, 0.0, True)


def attention_gradients(dtype: torch.dtype) -> Iterable[Sample]:
    for args, kwargs in attention_inputs(dtype):
        query, key, value, *rest = args
        out, logsumexp = aten._scaled_dot_product_flash_attention_for_cpu.default(*args, **kwargs)
        dropout, causal = rest or (0.0, False)
        grad = torch.randn_like(out)
        yield case(grad, query, key, value, out, logsumexp, dropout, causal, **kwargs)


SDPA = ("nn.functional.scaled_dot_product_attention",)
ROWS = (
    Row(aten._softmax.default, ("softmax",), softmax_inputs, FLOATS, SUM),
    Row(aten._softmax_backward_data.default, ("softmax",), softmax_gradients, FLOATS, SUM, scale=1),
    Row(aten._scaled_dot_product_flash_attention_for_cpu.default, SDPA, attention_inputs, FLOATS, MATMUL),
    Row(
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
        SDPA,
        attention_gradients,
        FLOATS,
        MATMUL,
        scale=16,
    ),
)
