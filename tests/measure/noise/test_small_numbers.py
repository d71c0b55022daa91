"""Numbers below the smallest normal one, and what cancels to such."""

from __future__ import annotations

import pytest
import torch
from of_function import Of
from planted_noise import plant
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

import dort_compare
from dort_compare.measure.distance.metrics import distance
from dort_compare.measure.noise.local import local_error
from dort_compare.models import LlamaConfig, build
from dort_compare.trace import Replay

aten = torch.ops.aten


@pytest.mark.parametrize("size", [3e-7, 1e-6, 1e-5])
def test_gradients_below_float16s_smallest_normal_number_agree(size):
    """Such numbers are 6e-8 apart, and torch's kernel rounds every sum of two."""
    torch.manual_seed(0)
    x, weight = torch.randn(2, 16, 4, 4).half(), torch.randn(16, 1, 7, 7).mul(0.02).half()
    module = Of(lambda x, w, g: (F.conv2d(x, w, groups=16, padding=3).float() * g).sum())
    args = (x.requires_grad_(), weight.requires_grad_(), size * torch.randn(2, 16, 4, 4))
    assert str(dort_compare.compare(module, args, backward=True)).startswith("agree")


def test_a_fault_in_gradients_below_float16s_smallest_normal_number_is_seen(monkeypatch):
    plant(monkeypatch, aten.mul.Tensor, 1.3)
    x = torch.linspace(-2e-5, 2e-5, 64).half()
    report = dort_compare.compare(Of(lambda x: x * x.sign().float().half()), (x,))
    assert [cause.target for cause in report.causes] == ["aten.mul.Tensor"]


@pytest.mark.parametrize("norm", [nn.LayerNorm(8), nn.GroupNorm(1, 16), nn.BatchNorm1d(16)], ids=str)
def test_norms_of_numbers_below_the_smallest_normal_one_agree(norm):
    """Such numbers are 1.4e-45 apart however small they are, and a norm divides by 0.003."""
    torch.manual_seed(0)
    report = dort_compare.compare(
        Of(lambda x, norm: norm(x * 1e-41), norm=norm), (torch.randn(32, 16, 8),), backward=True
    )
    assert report.verdict == "agree", str(report)


def test_gradients_of_attention_to_one_token_each_are_noise():
    """They are zero but for what rounding leaves where two equal products cancel; what is masked is -inf."""
    generator = torch.Generator().manual_seed(0)
    query, key, value, grad = (torch.randn(2, 4, 16, 8, generator=generator).requires_grad_() for _ in range(4))
    mask = torch.eye(16, dtype=torch.bool)[None, None].expand(2, 1, 16, 16)
    module = Of(lambda q, k, v, g: (F.scaled_dot_product_attention(q, k, v, attn_mask=mask) * g).sum())
    report = dort_compare.compare(module, (query, key, value, grad.detach()), backward=True)
    assert report.verdict == "agree", str(report)


@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_parameters_of_attention_to_one_token_agree(batch, seed):
    """Their gradients are exactly zero in torch, whose kernel computes both products that cancel alike."""
    config = LlamaConfig(hidden=32, heads=4, kv_heads=2, intermediate=48, vocabulary=50, attention="sdpa")
    model, inputs = build("attention", config, batch=batch, seq=1, seed=seed)
    report = dort_compare.compare(model, inputs, backward=True)
    assert report.verdict == "agree", str(report)


@pytest.mark.parametrize("size", [1e-34, 1e-36, 1e-40])
def test_products_below_the_smallest_normal_number_may_be_made_before_others(size):
    """torch's kernel multiplies by the gradient first, and by 316, one over the deviation, last."""
    torch.manual_seed(0)
    module = Of(lambda x, g, norm: (norm(x * size) * g).sum(), norm=nn.GroupNorm(1, 16))
    args = (torch.randn(2, 16, 8).requires_grad_(), torch.randn(2, 16, 8) * 1e-7)
    report = dort_compare.compare(module, args, backward=True)
    assert report.verdict == "agree", str(report)


def product_is_noise(a: Tensor, b: Tensor, factor: float) -> bool:
    """Whether a product that is too large by ``factor`` is taken for noise."""
    (node,) = make_fx(torch.mm)(a, b).graph.find_nodes(op="call_function", target=aten.mm.default)
    right = a @ b
    replay = Replay({node.args[0].name: a, node.args[1].name: b})
    return local_error(replay, node, right, right * factor, distance(right, right * factor)).is_noise


@pytest.mark.parametrize(("dtype", "size"), [(torch.float64, 1e-25), (torch.float32, 1e-18), (torch.bfloat16, 1e-17)])
def test_a_fault_in_small_products_is_seen(dtype, size):
    a, b = (torch.rand(8, 8, generator=torch.Generator().manual_seed(i), dtype=dtype) * size for i in range(2))
    assert not product_is_noise(a, b, 1.5)


@pytest.mark.parametrize("mask", [-1e9, -1e30, -1e37, torch.finfo(torch.float32).min])
def test_a_fault_in_small_products_beside_a_mask_is_seen(mask):
    a, b = (torch.rand(8, 8, generator=torch.Generator().manual_seed(i)) * 1e-4 for i in range(2))
    a[0, 0] = mask
    assert not product_is_noise(a, b.index_fill(0, torch.tensor(0), 0.0), 1.5)


def test_what_is_taken_from_beside_large_numbers_is_not_multiplied_by_them():
    table, place = torch.tensor([1e8, 1e-31, 2e-31]), torch.tensor([1, 2])
    (node,) = make_fx(lambda t, i: t[i])(table, place).graph.find_nodes(op="call_function", target=aten.index.Tensor)
    replay = Replay({"t_1": table, "i_1": place})
    right, wrong = table[place], table[place] * 3
    assert not local_error(replay, node, right, wrong, distance(right, wrong)).is_noise


@pytest.mark.parametrize("error", [0.5, 1.0])
def test_products_below_the_smallest_normal_number_may_be_taken_for_zero(error):
    a, b = (torch.rand(8, 8, generator=torch.Generator().manual_seed(i)).bfloat16() for i in range(2))
    a = a * 1e-37
    (node,) = make_fx(torch.mm)(a, b).graph.find_nodes(op="call_function", target=aten.mm.default)
    right = (a.double() @ b.double()).bfloat16()
    lost = right - right.sign() * error * torch.finfo(torch.bfloat16).smallest_normal
    replay = Replay({node.args[0].name: a, node.args[1].name: b})
    for expected, value in ((right, lost), (lost, right)):
        found = local_error(replay, node, expected, value, distance(expected, value))
        assert found.is_noise, found
    assert not local_error(replay, node, right, right * 2, distance(right, right * 2)).is_noise


def test_a_fault_in_numbers_below_the_smallest_normal_one_is_seen(monkeypatch):
    plant(monkeypatch, aten.neg.default, 1.02)
    report = dort_compare.compare(Of(lambda x: -(x * 1e-41)), (torch.randn(64, 8),))
    assert [cause.target for cause in report.causes] == ["aten.neg.default"]


@pytest.mark.parametrize("seed", [0, 2, 4])
def test_gradients_of_attention_to_one_token_by_its_scores_are_noise(seed):
    """A rounding of a score of 1e6 changes what is chosen: few elements move, and much further than the others."""
    torch.manual_seed(seed)
    operands = [(2e3 * torch.randn(2, 3, 6, 8)).requires_grad_() for _ in range(3)]
    report = dort_compare.compare(Of(F.scaled_dot_product_attention), operands, backward=True)
    assert report.verdict == "agree", str(report)
