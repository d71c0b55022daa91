"""What half precision rounds, and what it does not excuse."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

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


@pytest.mark.parametrize(
    ("target", "factor"), [(aten._softmax.default, 1.02), (aten.silu.default, 0.97), (aten.rsqrt.default, 1.001)]
)
def test_a_fault_in_mixed_precision_is_blamed_on_its_op(monkeypatch, target, factor):
    plant(monkeypatch, target, factor)
    config = LlamaConfig(hidden=64, heads=4, intermediate=96, vocabulary=100)
    module, args = build("decoder", config, batch=2, seq=16)
    report = dort_compare.compare(module, args, backward=True, autocast=torch.bfloat16)
    assert report.verdict == "diverge"
    blamed = {row.target for row in report.rows if row.status == "diverges"}
    assert blamed == {str(target)}


def of_gelu(x: Tensor, value: Tensor) -> bool:
    """Whether ``value`` is noise for GELU of ``x``."""
    (call,) = make_fx(F.gelu)(x).graph.find_nodes(op="call_function", target=aten.gelu.default)
    right = F.gelu(x)
    return local_error(Replay({call.args[0].name: x}), call, right, value, distance(right, value)).is_noise


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_small_elements_of_half_precision_are_no_noise_beside_large_ones(dtype):
    """What GELU makes of negative numbers is as small as the roundings of the largest."""
    x = torch.linspace(-6, 30, 400).to(dtype)
    assert of_gelu(x, F.gelu(x.float()).to(dtype))
    assert not of_gelu(x, (x.float() * torch.sigmoid(1.702 * x.float())).to(dtype))
    assert not of_gelu(x, F.gelu(x).where((x < -0.5) | (x > -0.4), 0))


@pytest.mark.usefixtures("silu_by_sigmoid")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_what_float32_loses_of_the_largest_element_is_noise_in_half_precision(dtype):
    """The Sigmoid is right to the last places of 1."""
    report = dort_compare.compare(Of(F.silu), (torch.linspace(-40, 8, 481).to(dtype),))
    assert report.verdict == "agree", str(report)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_what_nodes_round_on_their_way_is_noise_in_small_elements(dtype):
    """PyTorch's exporter computes in half precision, step by step."""
    generator = torch.Generator().manual_seed(0)
    operands = [torch.randn(6, 120, generator=generator).to(dtype) for _ in range(2)]
    model = Of(lambda a, b: torch.lerp(a, b, 0.7))
    report = dort_compare.compare(model, operands, exporter="torch")
    assert report.verdict == "agree", str(report)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [1.0, 0.003])
def test_fused_attention_may_take_the_exponential_as_half_precision_holds_it(dtype, size):
    """torch's kernel does on some processors, whatever the scores are."""
    generator = torch.Generator().manual_seed(0)
    inputs = [(torch.randn(2, 4, 16, 8, generator=generator) * size).to(dtype).requires_grad_() for _ in range(3)]
    report = dort_compare.compare(Of(F.scaled_dot_product_attention), inputs, backward=True)
    assert report.verdict == "agree", str(report)


@pytest.mark.parametrize(("error", "departs"), [(2.0**-15, False), (1.5 * 2.0**-11, True), (2.0**-10, True)])
def test_torchs_kernel_may_err_by_what_half_precision_operands_hold(error, departs):
    """The logsumexp of scores that are nearly equal moves with none of the operands."""
    x = torch.randn(1, 1, 8, 8, generator=torch.Generator().manual_seed(0)).half() * 0.01
    attention = aten._scaled_dot_product_flash_attention_for_cpu.default
    (call,) = make_fx(lambda x: attention(x, x, x))(x).graph.find_nodes(op="call_function", target=attention)
    node = next(user for user in call.users if user.args[1] == 1)
    right = attention(*[x.double()] * 3)[1].float()
    wrong, replay = right * (1 + error), Replay({call.args[0].name: x})
    found = local_error(replay, node, wrong, right, distance(wrong, right))
    assert (found.torch_departs, found.is_noise) == (departs, not departs)
    assert (found.distance.max_abs > found.noise_floor) is departs
    assert not local_error(replay, node, right, wrong, distance(right, wrong)).is_noise  # ONNX's has to be as good


def test_a_factor_makes_two_roundings_of_a_sum():
    """What cancels is as wrong as the product is."""
    x, y = torch.tensor([1.0, 1e6]), torch.tensor([-1 / 3, 1.0])
    graph = make_fx(lambda x, y: torch.add(x, y, alpha=3))(x, y)
    (node,) = graph.graph.find_nodes(op="call_function", target=aten.add.Tensor)
    fused = (x.double() + 3 * y.double()).float()
    apart = x + 3 * y
    assert not torch.equal(fused, apart)
    replay = Replay({"x_1": x, "y_1": y})
    assert local_error(replay, node, fused, apart, distance(fused, apart)).is_noise


FACTORED: dict[str, Callable[..., Tensor]] = {
    "add": lambda x, y: torch.add(x, y, alpha=-0.3),
    "sub": lambda x, y: torch.sub(x, y, alpha=0.3),
    "rsub": lambda x, y: torch.rsub(y, x, alpha=0.3),
    "of a number": lambda x, _: torch.sub(x, 1.1, alpha=0.3),
}
"""Sums of an ``x`` that is nearly 0.3 ``y``, or 0.33."""


def factored(case: str, dtype: torch.dtype) -> tuple[Replay, torch.fx.Node, dict[str, Tensor]]:
    """Such a sum in half precision as kernels round it: those for CPUs round ``alpha`` and the number first, and behind
    the last whole vector the product; those for CUDA nothing."""
    y = torch.randn(16, generator=torch.Generator().manual_seed(0)).to(dtype).float()
    if case == "of a number":
        y = torch.full((16,), 1.1)
    x = (0.3 * y).to(dtype)
    (node,) = (n for n in make_fx(FACTORED[case])(x, y.to(dtype)).graph.nodes if n.op == "call_function")
    alpha = torch.tensor(0.3).to(dtype).float()
    product = alpha * y.to(dtype).float()
    sums = {"vector": x.float() - product, "rest": x.float() - product.to(dtype).float(), "CUDA": x.float() - 0.3 * y}
    return Replay({"x_1": x, "y_1": y.to(dtype)}), node, {kernel: left.to(dtype) for kernel, left in sums.items()}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("case", FACTORED)
def test_what_is_rounded_before_a_sum_in_half_precision_is_noise(case, dtype):
    replay, node, sums = factored(case, dtype)
    assert not torch.equal(sums["vector"], sums["rest"])
    assert not torch.equal(sums["vector"], sums["CUDA"])
    for expected, value in itertools.permutations(sums.values(), 2):
        found = local_error(replay, node, expected, value, distance(expected, value))
        assert found.is_noise
        assert not found.torch_departs


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("case", FACTORED)
def test_more_than_that_is_not(case, dtype):
    replay, node, sums = factored(case, dtype)
    wrong = sums["vector"] + 8 * torch.finfo(dtype).eps
    assert not local_error(replay, node, sums["vector"], wrong, distance(sums["vector"], wrong)).is_noise
    assert local_error(replay, node, wrong * 4, sums["vector"], distance(wrong * 4, sums["vector"])).torch_departs


def test_sums_that_cancel_in_half_precision_agree():
    """In the vector, and in the eight elements behind it."""
    y = torch.randn(40, generator=torch.Generator().manual_seed(0))
    inputs = (-0.3 * y).bfloat16(), y.bfloat16()
    report = dort_compare.compare(Of(lambda x, y: (torch.add(x, y, alpha=0.3), 0.3 + x.clamp(max=-0.3))), inputs)
    assert report.verdict == "agree", str(report)


def test_a_number_that_another_model_does_not_round_first_is_noise():
    x = torch.full((16,), 0.3).bfloat16()
    (node,) = make_fx(lambda x: x - 0.3)(x).graph.find_nodes(op="call_function", target=aten.sub.Tensor)
    zero, left = x - 0.3, (x.float() - 0.3).bfloat16()
    assert not zero.any()
    assert left.all()
    for expected, value in ((zero, left), (left, zero)):
        found = local_error(Replay({"x_1": x}), node, expected, value, distance(expected, value))
        assert found.is_noise
        assert not found.torch_departs


def test_a_cast_to_a_wider_dtype_is_exact(monkeypatch):
    plant(monkeypatch, aten._to_copy.default, 1.00002)
    report = dort_compare.compare(
        Of(lambda x: x.float() * 2), (torch.randn(64, generator=torch.Generator().manual_seed(0)).half(),)
    )
    assert [cause.target for cause in report.causes] == ["aten._to_copy.default"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_finer_result_of_half_precision_operands_is_held_to_its_own_dtype(dtype):
    """As the logarithms that attention hands to its gradient, where a scale that was off by 0.1 % was noise."""
    x = torch.randn(64, generator=torch.Generator().manual_seed(0)).to(dtype)
    total = make_fx(lambda x: x.sum(dtype=torch.float32))(x)
    (node,) = total.graph.find_nodes(op="call_function", target=aten.sum.default)
    right = x.sum(dtype=torch.float32)
    rounded = right + torch.finfo(torch.float16).eps
    assert not local_error(Replay({node.args[0].name: x}), node, right, rounded, distance(right, rounded)).is_noise


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_half_model_with_a_float32_output_agrees(dtype):
    torch.manual_seed(0)
    module = Of(lambda x, a, b: b(F.silu(a(x))).float(), a=nn.Linear(32, 64), b=nn.Linear(64, 16)).to(dtype)
    x = torch.randn(8, 32).to(dtype)
    assert str(dort_compare.compare(module, (x,), backward=True)).startswith("agree")


PLACES = torch.arange(4).repeat(32)


ADDING_UP: dict[str, tuple[Any, Callable[[Tensor], Tensor]]] = {
    "index_put": (aten.index_put.default, lambda x: x.new_zeros(4, 8).index_put((PLACES,), x, accumulate=True)),
    "embedding": (
        aten.embedding_dense_backward.default,
        lambda x: aten.embedding_dense_backward(x, PLACES, 4, -1, False).clone(),
    ),
    "embedding_bag": (
        aten._embedding_bag_backward.default,
        lambda x: aten._embedding_bag_backward(
            x,
            PLACES,
            PLACES.new_tensor(range(128)),
            PLACES.new_tensor(range(128)),
            PLACES.new_zeros(128),
            PLACES.new_zeros(0),
            4,
            False,
            0,
            False,
            None,
        ).clone(),
    ),
    "replication_pad1d": (
        aten.replication_pad1d_backward.default,
        lambda x: aten.replication_pad1d_backward(x.view(32, 32).t()[None], x.new_zeros(1, 32, 1), [31, 0]).clone(),
    ),
}
"""32 sums of 32 terms each."""


@pytest.mark.parametrize("factor", [1.0, 1.3])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ADDING_UP)
def test_torch_may_err_by_what_adding_up_in_half_precision_loses(monkeypatch, name, dtype, factor):
    """Where the terms cancel, each of their sums is rounded."""
    target, add_up = ADDING_UP[name]
    terms = torch.randn(32, 4, 8, generator=torch.Generator().manual_seed(0))
    terms = (terms - terms.mean(0) + (0.0 if factor == 1 else 0.1)).flatten(0, 1).to(dtype)
    if factor != 1:
        plant(monkeypatch, target, factor)
    report = dort_compare.compare(Of(add_up), (terms,))
    assert {row.target for row in report.rows if row.status == "diverges"} == ({str(target)} if factor != 1 else set())
