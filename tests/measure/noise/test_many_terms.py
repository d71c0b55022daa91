"""Sums of many terms, added up in any order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from every_pair import every_pair
from of_function import Of
from planted_noise import plant
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

import dort_compare
from dort_compare.measure.distance.metrics import distance
from dort_compare.measure.noise.local import local_error
from dort_compare.trace import Replay

aten = torch.ops.aten


def attention_with_biases(x: Tensor, q: nn.Module, k: nn.Module, v: nn.Module) -> Tensor:
    return (q(x) @ k(x).transpose(1, 2)).softmax(-1) @ v(x)


@pytest.mark.parametrize("seed", range(3))
def test_a_gradient_that_cancels_to_nothing_agrees(seed):
    torch.manual_seed(seed)
    module = Of(attention_with_biases, q=nn.Linear(16, 16), k=nn.Linear(16, 16), v=nn.Linear(16, 16))
    assert str(dort_compare.compare(module, (torch.randn(2, 9, 16),), backward=True)).startswith("agree")


def added_in_sequence(x: Tensor) -> Tensor:
    """The sum over the first dimension, a term after another."""
    return torch.from_numpy(np.add.accumulate(x.numpy(), axis=0)[-1])


@every_pair(dtype=(torch.float32, torch.float64), shape=((8192, 64), (1_000_000, 1)), mean=(0.0, 1.0), seed=(0, 1))
def test_many_terms_may_be_added_one_after_another(shape, mean, seed, dtype):
    """ONNX Runtime adds rows so; torch adds in pairs."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype) + mean
    (node,) = make_fx(lambda x: x.sum(0))(x).graph.find_nodes(op="call_function", target=aten.sum.dim_IntList)
    replay, right = Replay({node.args[0].name: x}), x.sum(0)
    total = added_in_sequence(x)
    found = local_error(replay, node, right, total, distance(right, total))
    assert found.is_noise, found
    wrong = right + 1e-3 * right.abs().max()
    assert not local_error(replay, node, right, wrong, distance(right, wrong)).is_noise
    fewer = x[: -len(x) // 100].sum(0)
    assert not local_error(replay, node, right, fewer, distance(right, fewer)).is_noise


@pytest.mark.parametrize("seed", range(6))
def test_large_terms_that_cancel_late_may_be_added_one_after_another(seed):
    """Every addition in between rounds a large sum."""
    generator = torch.Generator().manual_seed(seed)
    x, large = torch.randn(98, 960, generator=generator) * 0.1, torch.randn(960, generator=generator)
    x[0] += large
    x[-1] -= large
    (node,) = make_fx(lambda x: x.sum(0))(x).graph.find_nodes(op="call_function", target=aten.sum.dim_IntList)
    right, total = x.sum(0), added_in_sequence(x)
    assert local_error(Replay({node.args[0].name: x}), node, right, total, distance(right, total)).is_noise


def test_what_is_taken_from_many_elements_is_not_rounded():
    """A table kept in half precision."""
    table, place = torch.randn(100_000, generator=torch.Generator().manual_seed(0)), torch.tensor([7])
    (node,) = make_fx(lambda t, i: t[i])(table, place).graph.find_nodes(op="call_function", target=aten.index.Tensor)
    replay = Replay({"t_1": table, "i_1": place})
    right, rounded = table[place], table[place].half().float()
    assert not local_error(replay, node, right, rounded, distance(right, rounded)).is_noise


def test_a_running_sum_has_as_many_terms_as_its_dimension():
    x = torch.rand(65536, generator=torch.Generator().manual_seed(0))
    report = dort_compare.compare(Of(lambda x: x.cumsum(0)), (x,), exporter="torch")
    assert report.verdict == "agree", str(report)


@pytest.mark.parametrize("exporter", ["native", "torch"])
def test_a_loss_over_many_elements_agrees(exporter):
    x = torch.randn(16, 8192, generator=torch.Generator().manual_seed(0), requires_grad=True)
    report = dort_compare.compare(Of(lambda x: (x * x).mean()), (x,), backward=True, exporter=exporter)
    assert report.verdict == "agree", str(report)


@pytest.mark.parametrize("seed", range(12))
def test_a_sum_of_large_terms_that_cancel_agrees(seed):
    """Its rounding is that of the terms, and torch's own may happen to be small: the sum alone says nothing."""
    torch.manual_seed(seed)
    x = torch.randn(4, 200)
    x[:, 100:] = -x[:, :100] + 1e-4 * torch.randn(4, 100)
    total = x[:, torch.randperm(200)]
    report = dort_compare.compare(Of(lambda x: x.sum(1)), (total,))
    assert {row.status for row in report.rows} <= {"ok", "inherits"}


OF_INTEGERS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.sum(dtype=torch.float32),
    "sum of a row": lambda x: x[None].sum(1, dtype=torch.float32),
    "mean": lambda x: x.mean(dtype=torch.float32),
    "mean of a row": lambda x: x[None].mean(1, dtype=torch.float32),
    "running sum": lambda x: x.cumsum(0, dtype=torch.float32),
}


@every_pair(case=OF_INTEGERS, dtype=[torch.int32, torch.int64])
def test_a_sum_of_large_integers_that_cancel_in_float32_agrees(case, dtype):
    """They are rounded to float32 before they are added, as numbers that are floating from the start."""
    x = torch.tensor([-(2**31), -7, -1, 0, 1, 3, 2**31 - 1, 9], dtype=dtype)
    report = dort_compare.compare(Of(OF_INTEGERS[case]), (x,))
    assert {row.status for row in report.rows} <= {"ok", "inherits"}, str(report)


def test_a_fault_in_a_sum_of_integers_is_still_seen(monkeypatch):
    plant(monkeypatch, aten.sum.default, 1.0001)
    x = torch.arange(1000) - 400
    report = dort_compare.compare(Of(OF_INTEGERS["sum"]), (x,))
    assert report.verdict == "diverge"


def test_a_fault_in_a_sum_that_cancels_is_still_seen(monkeypatch):
    plant(monkeypatch, aten.sum.dim_IntList, 1.02)
    x = torch.randn(4, 200)
    x[:, 100:] = -x[:, :100] + 1e-4 * torch.randn(4, 100)
    report = dort_compare.compare(Of(lambda x: x.sum(1)), (x,))
    assert report.verdict == "diverge"
