"""A fault is blamed on the op that has it, and rounding on none: neither what cancels, nor what a threshold flips."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from every_pair import every_pair
from of_function import Of
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

import dort_compare
from dort_compare.lowering import registered, registry
from dort_compare.measure.distance.metrics import distance
from dort_compare.measure.noise.extremes import has_same_extremes
from dort_compare.measure.noise.local import local_error
from dort_compare.models import LlamaConfig, build
from dort_compare.trace import Replay

aten = torch.ops.aten


def plant(monkeypatch: pytest.MonkeyPatch, target: Any, factor: float) -> None:
    """Every result of ``target`` comes out scaled."""
    original = registered()[target]

    def wrong(op: Any, *args: Any, **kwargs: Any) -> Any:
        return op.cast(op.Mul(op.cast(original(op, *args, **kwargs), torch.float32), factor), op.result.dtype)

    monkeypatch.setitem(registry._TABLE, target, wrong)


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


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "glu": lambda x: F.glu(torch.cat([x, x], 1), 1),
    "mish": F.mish,
}


BESIDE_A_LARGE_CHANNEL: dict[Any, Callable[[Tensor], Tensor]] = {
    aten.silu.default: F.silu,
    aten.gelu.default: F.gelu,
    aten.softplus.default: F.softplus,
    aten.elu.default: F.elu,
    aten.mish.default: F.mish,
    aten.sigmoid.default: lambda x: x.sigmoid() * x,
    aten.erf.default: lambda x: x.erf() * x,
}


@pytest.mark.parametrize("target", BESIDE_A_LARGE_CHANNEL)
@pytest.mark.parametrize("exporter", ["native", pytest.param("torch", marks=pytest.mark.slow)])
def test_beside_a_large_channel_each_element_is_judged_by_its_own_size(target, exporter, monkeypatch):
    """In float32; what is lost of 1 on the way is noise, as in a sigmoid of ONNX Runtime's."""
    torch.manual_seed(0)
    x = torch.randn(8, 32) * 4
    x[:, 3] = 3e3
    model = Of(BESIDE_A_LARGE_CHANNEL[target])
    clean = dort_compare.compare(model, (x.requires_grad_(),), backward=True, exporter=exporter)
    assert clean.verdict == "agree", str(clean)
    if exporter == "native":
        original = registered()[target]

        def wrong(op: Any, *args: Any) -> Any:
            y = original(op, *args)
            return op.Where(op.Less(op.Abs(y), 2.0), op.Mul(y, 1.001), y)

        monkeypatch.setitem(registry._TABLE, target, wrong)
        report = dort_compare.compare(model, (x,))
        assert [cause.target for cause in report.causes] == [str(target)], str(report)


def test_beside_a_large_channel_a_product_is_judged_by_each_column(monkeypatch):
    torch.manual_seed(0)
    layer = nn.Linear(16, 32)
    with torch.no_grad():
        layer.weight[3] *= 3e4
    x = torch.randn(24, 16)
    assert dort_compare.compare(layer, (x,), backward=True).verdict == "agree"
    original = registered()[aten.addmm.default]

    def wrong(op: Any, *args: Any, **kwargs: Any) -> Any:
        y = original(op, *args, **kwargs)
        return op.Where(op.Less(op.Abs(y), 10.0), op.Mul(y, 1.001), y)

    monkeypatch.setitem(registry._TABLE, aten.addmm.default, wrong)
    report = dort_compare.compare(layer, (x,))
    assert [cause.target for cause in report.causes] == ["aten.addmm.default"], str(report)


@pytest.mark.parametrize("bias", [-9.0, -12.0, -95.0])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_unit_that_is_dead_agrees(name, bias):
    """Its values are far smaller than those of the others."""
    torch.manual_seed(0)
    into, out = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3)
    with torch.no_grad():
        into.bias[2] = bias
    model = Of(lambda x, into, out: out(ACTIVATIONS[name](into(x))), into=into, out=out)
    report = dort_compare.compare(model, (torch.randn(2, 3, 12, 12),), backward=True)
    assert report.verdict == "agree", str(report)


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


EXACT: dict[str, Callable[..., Tensor]] = {
    "added": lambda x, keep: x + torch.where(keep, 0.0, -1e9),
    "taken": lambda x, keep: torch.sub(x, torch.where(keep, 0.0, 1e4)),
    "filled": lambda x, keep: x.masked_fill(keep.logical_not(), -1e9),
    "chosen": lambda x, keep: torch.where(keep, x, -1e4),
    "shown": lambda x, keep: x.masked_fill(keep.logical_not(), -1e9).view(4, 64),
}
"""Ops that leave numbers far larger than the others, though far from infinity."""


def masked(case: str) -> tuple[Replay, torch.fx.Node, Tensor]:
    """The last call of a function of scores and what of them is kept, half of it, and what torch makes of it."""
    x = torch.randn(16, 16, generator=torch.Generator().manual_seed(0))
    graph = make_fx(EXACT[case])(x, torch.ones(16, 16).tril() > 0)
    values = dict(zip(("x_1", "keep_1"), (x, torch.ones(16, 16).tril() > 0), strict=True))
    calls = [node for node in graph.graph.nodes if node.op == "call_function"]
    for node in calls:
        result = Replay(values).value(node)
        assert result is not None
        values[node.name] = result
    return Replay(values), calls[-1], values[calls[-1].name]


@pytest.mark.parametrize("case", EXACT)
def test_a_finite_mask_is_no_measure_for_what_it_leaves(case):
    replay, node, right = masked(case)
    wrong = right.clone()
    wrong.view(-1)[0] += 1e-4  # the first element is kept
    found = local_error(replay, node, right, wrong, distance(right, wrong))
    assert not found.is_noise
    assert not found.torch_departs
    assert found.noise_floor < 1e-5


@pytest.mark.parametrize("case", EXACT)
def test_what_a_finite_mask_fills_may_be_off_by_a_rounding_of_its_own(case):
    replay, node, right = masked(case)
    other = torch.nextafter(right, torch.full_like(right, torch.inf))
    assert local_error(replay, node, right, other, distance(right, other)).is_noise


MOVES: dict[str, Callable[[Tensor], Tensor]] = {
    "cast": lambda x: x.to(torch.bfloat16),
    "unfolded": lambda x: aten.unfold_copy(x, 1, 4, 2),
    "gradient of a slice": lambda x: aten.slice_backward(x, [1, 10], 1, 0, 8, 1),
    "padded": lambda x: aten.reflection_pad1d(x, [1, 1]),
    "resampled": lambda x: aten.upsample_nearest1d(x[None], [16]),
}
"""Ops that take elements as they are, or round each once."""


@pytest.mark.parametrize("case", MOVES)
def test_each_element_that_is_only_moved_is_held_to_its_own_size(case):
    x = 10.0 ** -torch.arange(8.0)[None]
    graph = make_fx(MOVES[case])(x)
    values = {"x_1": x}
    for node in graph.graph.find_nodes(op="call_function", target=aten.unsqueeze.default):
        values[node.name] = x[None]
    node = next(n for n in graph.graph.nodes if n.op == "output").args[0]
    right = graph(x)
    wrong = torch.where(right.abs() < 1e-6, right * 1.3, right)
    found = local_error(Replay(values), node, right, wrong, distance(right, wrong))
    assert not found.is_noise
    assert not found.torch_departs
    other = torch.nextafter(right, 2 * right)
    assert local_error(Replay(values), node, right, other, distance(right, other)).is_noise


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


def test_a_fault_before_a_mask_is_seen_beside_the_masks_huge_numbers(monkeypatch):
    def attention(x: Tensor) -> Tensor:
        mask = torch.full((6, 6), torch.finfo(torch.float32).min).triu(1)
        return (x + mask).softmax(-1)

    plant(monkeypatch, aten.add.Tensor, 1 + 2**-8)
    report = dort_compare.compare(Of(attention), (torch.randn(2, 6, 6),))
    assert report.first_divergence is not None
    assert report.first_divergence.target == "aten.add.Tensor"


def test_equal_masks_are_no_measure_for_what_is_beside_them():
    """A rounding of the largest number is larger than any fault."""
    x, mask = torch.randn(6, 6), torch.full((6, 6), torch.finfo(torch.float32).min).triu(1)
    (node,) = make_fx(torch.add)(x, mask).graph.find_nodes(op="call_function", target=aten.add.Tensor)
    replay = Replay({operand.name: value for operand, value in zip(node.args, (x, mask), strict=True)})
    right = x + mask
    wrong = right.clone()
    wrong[0, 0] += 0.01
    assert local_error(replay, node, right, right * 1, distance(right, right * 1)).is_noise
    assert not local_error(replay, node, right, wrong, distance(right, wrong)).is_noise


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_finer_result_of_half_precision_operands_is_held_to_its_own_dtype(dtype):
    """As the logarithms that attention hands to its gradient, where a scale that was off by 0.1 % was noise."""
    x = torch.randn(64, generator=torch.Generator().manual_seed(0)).to(dtype)
    total = make_fx(lambda x: x.sum(dtype=torch.float32))(x)
    (node,) = total.graph.find_nodes(op="call_function", target=aten.sum.default)
    right = x.sum(dtype=torch.float32)
    rounded = right + torch.finfo(torch.float16).eps
    assert not local_error(Replay({node.args[0].name: x}), node, right, rounded, distance(right, rounded)).is_noise


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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("seed", range(3))
def test_a_threshold_that_rounding_flips_is_no_divergence(dtype, seed):
    torch.manual_seed(seed)
    module = Of(lambda x, a: torch.where((h := a(x)) > 0.5, h, 0.0), a=nn.Linear(64, 64))
    report = dort_compare.compare(module, (torch.randn(128, 64),), autocast=dtype)
    assert not [row for row in report.rows if row.status == "diverges"]


def test_a_threshold_that_only_a_few_roundings_reach_is_no_divergence(monkeypatch):
    """ONNX's products are right within noise, and yet its mask is another than torch's."""
    plant(monkeypatch, aten.mm.default, 1 + 1.2e-6)
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.rand(1, 64, generator=generator), nn.Parameter(torch.rand(64, 4, generator=generator))
    bound = (x.double() @ weight.detach().double()).float() * torch.tensor([0.5, 0.5, 1 + 8e-7, 1.5])
    report = dort_compare.compare(Of(lambda x, w: torch.relu(x @ w - bound)), (x, weight), backward=True)
    assert report.verdict == "agree", str(report)
    (gradient,) = (row for row in report.outputs if row.kind == "gradient" and row.name.endswith("1]"))
    assert gradient.distance.max_abs > 0.1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_half_model_with_a_float32_output_agrees(dtype):
    torch.manual_seed(0)
    module = Of(lambda x, a, b: b(F.silu(a(x))).float(), a=nn.Linear(32, 64), b=nn.Linear(64, 16)).to(dtype)
    x = torch.randn(8, 32).to(dtype)
    assert str(dort_compare.compare(module, (x,), backward=True)).startswith("agree")


def test_a_model_that_cannot_run_in_float64_is_compared_without(capsys):
    torch.manual_seed(0)
    module = Of(lambda x, a, b: b(a(x).float()), a=nn.Linear(8, 8), b=nn.Linear(8, 4))
    report = dort_compare.compare(module, (torch.randn(3, 8),), backward=True, autocast=torch.bfloat16)
    assert str(report).startswith("agree")
    assert all(row.torch_vs_float64 is None for row in report.outputs)


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_batch_norm_in_training_agrees(dtype):
    """The gradient by the bias before it is what rounding leaves of a sum that is zero."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16)).to(dtype)
    assert str(dort_compare.compare(module, (torch.randn(32, 16, dtype=dtype),), backward=True)).startswith("agree")


def of_experts(indices: Callable[[Tensor], Tensor]) -> Any:
    """Many equal numbers, ordered, and what they order."""
    torch.manual_seed(0)
    experts = torch.randint(4, (200,))
    return dort_compare.compare(Of(lambda x, e: x[indices(e)].sum() + 0 * x), (torch.randn(200), experts))


@pytest.mark.parametrize(
    "indices",
    [
        torch.argsort,
        lambda e: e.sort(stable=False)[1],
        lambda e: torch.topk(e.float(), 150)[1],
        lambda e: e.float().where(e > 0, math.nan).view(20, 10).nanmedian(0, keepdim=True)[1],
        lambda e: torch.full((4, 5), math.nan).where(e[:20].view(4, 5) > 4, math.nan).nanmedian(1)[1],
        lambda e: e.mode(0, keepdim=True)[1],
    ],
    ids=["sort", "not stable", "topk", "nanmedian", "nanmedian of NaN", "mode"],
)
def test_the_order_of_equal_elements_is_open(indices):
    report = of_experts(indices)
    assert report.verdict == "agree", str(report)


@pytest.mark.parametrize(
    "indices",
    [lambda e: e.kthvalue(3).indices, lambda e: (e + math.nan).nanmedian(0).indices, lambda e: e.median(0).indices],
    ids=["kthvalue", "nanmedian of NaN", "median"],
)
def test_a_model_may_return_any_of_equal_elements(indices):
    """In reverse that in the middle stays where it is."""
    torch.manual_seed(0)
    for count in (5, 200):
        assert dort_compare.compare(Of(indices), (torch.randint(4, (count,)).float(),)).verdict == "agree"


UNSORTED = [(8, 3), (64, 8), (300, 100)]


def routed(n: int, k: int) -> Any:
    """A mixture of ``n`` experts of which each token chooses ``k``, as DeepSeek V3 does, and the scores themselves."""

    def function(x: Tensor, w: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        scores, experts = x.sigmoid().topk(k, sorted=False)
        return torch.einsum("tk,tkd->td", scores, w[experts]), counts.topk(2, sorted=False)[0].sum(-1)

    torch.manual_seed(0)
    inputs = (torch.randn(5, n).requires_grad_(), torch.randn(n, 4).requires_grad_(), torch.randint(9, (5, n)))
    return dort_compare.compare(Of(function), inputs, backward=True)


@pytest.mark.parametrize(("n", "k"), UNSORTED)
def test_the_order_of_what_is_chosen_unsorted_is_open(n, k):
    report = routed(n, k)
    assert report.verdict == "agree", str(report)


@pytest.mark.parametrize(("n", "k"), UNSORTED)
def test_what_is_chosen_unsorted_may_be_returned(n, k):
    torch.manual_seed(0)
    report = dort_compare.compare(
        Of(lambda x: x.topk(k, sorted=False)), (torch.randn(5, n).requires_grad_(),), backward=True
    )
    assert report.verdict == "agree", str(report)


@pytest.mark.parametrize("backwards", [0, 1], ids=["values", "indices"])
def test_what_is_chosen_belongs_to_its_place(monkeypatch, backwards):
    original = registered()[aten.topk.default]

    def apart(op: Any, x: Any, k: int, *args: Any, **kwargs: Any) -> Any:
        found = list(original(op, x, k, *args, **kwargs))
        found[backwards] = op.Gather(found[backwards], op.const([*range(k)][::-1], torch.int64), axis=1)
        return tuple(found)

    monkeypatch.setitem(registry._TABLE, aten.topk.default, apart)
    report = routed(64, 8)
    assert {row.target for row in report.rows if row.status == "diverges"} == {"aten.topk.default"}, str(report)
    assert report.first_divergence is not None
    assert "right on torch's operands" not in str(report).split("values:")[0], str(report)


@pytest.mark.parametrize("seed", range(5))
def test_each_order_of_what_is_returned_unsorted_is_right(seed):
    torch.manual_seed(seed)
    report = dort_compare.compare(Of(lambda x: x.topk(3, sorted=False)), (torch.randn(4, 8),))
    assert report.verdict == "agree", str(report)


@pytest.mark.parametrize(("n", "k"), UNSORTED)
def test_what_is_chosen_is_not(monkeypatch, n, k):
    original = registered()[aten.topk.default]

    def lowest(op: Any, x: Any, k: int, dim: int = -1, largest: bool = True, *more: Any, **others: Any) -> Any:
        return original(op, x, k, dim, not largest, *more, **others)

    monkeypatch.setitem(registry._TABLE, aten.topk.default, lowest)
    report = routed(n, k)
    assert {cause.target for cause in report.causes} == {"aten.topk.default"}


def test_a_wrong_order_is_not(monkeypatch):
    original = registered()[aten.sort.default]

    def backwards(op: Any, x: Any, dim: int = -1, descending: bool = False) -> Any:
        return original(op, x, dim, not descending)

    monkeypatch.setitem(registry._TABLE, aten.sort.default, backwards)
    report = of_experts(torch.argsort)
    assert report.first_divergence is not None
    assert report.first_divergence.target in ("aten.sort.default", "operator.getitem")


def test_strides_are_read_in_the_memory_that_torch_traced():
    """ONNX Runtime's tensors are contiguous, torch's transposed ones are not."""

    def function(x: Tensor) -> Tensor:
        y = (x.t() * 2).as_strided((3, 2), (1, 3), 1)
        return y + 1

    report = dort_compare.compare(Of(function), (torch.randn(4, 3),))
    assert str(report).startswith("agree"), str(report)
    assert report.fallbacks == ()


@pytest.mark.parametrize("seed", [0, 2, 4])
def test_gradients_of_attention_to_one_token_by_its_scores_are_noise(seed):
    """A rounding of a score of 1e6 changes what is chosen: few elements move, and much further than the others."""
    torch.manual_seed(seed)
    operands = [(2e3 * torch.randn(2, 3, 6, 8)).requires_grad_() for _ in range(3)]
    report = dort_compare.compare(Of(F.scaled_dot_product_attention), operands, backward=True)
    assert report.verdict == "agree", str(report)


# What cancels inside of an op.


def sure(labels: Tensor, margin: float) -> Tensor:
    return F.one_hot(labels, 10) * margin + torch.randn(16, 10, generator=torch.Generator().manual_seed(1))


LABELS = torch.arange(16) % 10
CANCELLING: dict[str, tuple[Callable[..., Tensor], Tensor]] = {
    "cross entropy of a sure model": (lambda x: F.cross_entropy(x, LABELS), sure(LABELS, 20.0)),
    "tanh far out": (torch.tanh, 5 + torch.rand(16, 10)),
    "gelu far below": (F.gelu, -6 + 0.1 * torch.rand(16, 10)),
    "gelu by tanh": (lambda x: F.gelu(x, approximate="tanh"), -4 + 0.05 * torch.randn(64, 32)),
    "attention that chooses": (lambda x: F.scaled_dot_product_attention(20 * x, 20 * x, x), torch.randn(1, 2, 8, 16)),
}


@pytest.mark.parametrize("case", CANCELLING)
def test_a_rounding_inside_of_an_op_is_noise_where_it_cancels(case):
    function, x = CANCELLING[case]
    report = dort_compare.compare(Of(function), (x.requires_grad_(),), backward=True)
    assert str(report).startswith("agree"), str(report)


# Small rows beside a huge one.

OUTLIER: dict[str, Callable[[Tensor], Tensor]] = {
    "product": lambda x: x @ torch.linspace(-1, 1, 144).view(12, 12)[: x.shape[1], : x.shape[1]].cos(),
    "softplus": F.softplus,
    "square": lambda x: x**2,
    "running sum": lambda x: x.cumsum(-1),
    "sorted": lambda x: x.sort(-1).values,
    "repeated": lambda x: x.repeat(1, 2),
    "rounded": torch.round,
}


def beside_an_outlier(case: str, size: float, width: int) -> tuple[Replay, torch.fx.Node, Tensor]:
    """The last call of a function of 16 rows of which the first is huge, and what torch makes of it."""
    x = 3 * torch.randn(16, width, generator=torch.Generator().manual_seed(0))
    x[0] *= size
    graph = make_fx(OUTLIER[case])(x)
    values: dict[str, Any] = {}
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            values[node.name] = x
        elif node.op == "get_attr":
            values[node.name] = getattr(graph, node.target)
        elif node.op == "call_function":
            values[node.name] = Replay(values).value(node)
    last = graph.graph.output_node().args[0]
    return Replay(values), last, values[last.name]


@pytest.mark.parametrize("size", [1e3, 1e8])
@pytest.mark.parametrize("width", [2, 12])
@pytest.mark.parametrize("case", OUTLIER)
def test_a_huge_row_is_no_measure_for_the_others(case, width, size):
    replay, node, right = beside_an_outlier(case, size, width)
    wrong = right.clone()
    wrong[-1] *= 1.03 if case != "rounded" else 2
    found = local_error(replay, node, right, wrong, distance(right, wrong))
    assert not found.is_noise
    assert not found.torch_departs
    assert found.noise_floor < 1e-3 or size < 1e8
    assert found.distance.max_abs == (wrong[-1] - right[-1]).abs().max()
    rounded = torch.nextafter(right, torch.zeros(()))
    assert local_error(replay, node, right, rounded, distance(right, rounded)).is_noise or case in ("sorted", "rounded")


def test_a_row_that_overflows_is_no_measure_for_the_others():
    x = torch.randn(16, 12, generator=torch.Generator().manual_seed(0))
    x[0] = 3e38
    graph = make_fx(lambda x: torch.mm(x, 4 * torch.ones(12, 12)))(x)
    (node,) = graph.graph.find_nodes(op="call_function", target=aten.mm.default)
    values = {"x_1": x, node.args[1].name: 4 * torch.ones(12, 12)}
    right = torch.mm(x, 4 * torch.ones(12, 12))
    assert right[0].isinf().all()
    wrong = right.clone()
    wrong[-1] *= -1
    found = local_error(Replay(values), node, right, wrong, distance(right, wrong))
    assert not found.is_noise
    assert found.noise_floor < 1e-3


# NaN and inf on one side.

FAR = torch.tensor([-1e30, -1.0, 0.0, 2.0, 89.0, 1e30])
"""exp of these is 0 or infinite, in float32, at the ends."""


def of_exp(torch_has: Tensor, onnx_has: Tensor) -> Any:
    graph = make_fx(torch.exp)(FAR).graph
    (node,) = graph.find_nodes(op="call_function", target=aten.exp.default)
    replay = Replay({node.args[0].name: FAR})
    return local_error(replay, node, torch_has, onnx_has, distance(torch_has, onnx_has))


@pytest.mark.parametrize(("place", "put"), [(2, torch.nan), (2, torch.inf), (4, 3e38), (5, 0.0), (5, -torch.inf)])
def test_float64_tells_on_which_side_what_is_not_finite_is_wrong(place, put):
    right = torch.exp(FAR)
    assert right[4:].isinf().all()
    wrong = right.clone()
    wrong[place] = put
    of_torch, of_onnx = of_exp(wrong, right), of_exp(right, wrong)
    assert (of_torch.torch_vs_float64, of_torch.onnx_vs_float64 < 1e-6) == (torch.inf, True)
    assert (of_onnx.torch_vs_float64 < 1e-6, of_onnx.onnx_vs_float64) == (True, torch.inf)
    assert (of_torch.torch_departs, of_onnx.torch_departs) == (True, False)
    assert not of_torch.is_noise
    assert not of_onnx.is_noise


def test_where_both_sides_are_wrong_neither_is_said_to_be_right():
    right = torch.exp(FAR)
    torch_has, onnx_has = right.clone(), right.clone()
    torch_has[2], onnx_has[3] = torch.nan, torch.nan
    found = of_exp(torch_has, onnx_has)
    assert (found.torch_departs, found.torch_vs_float64, found.onnx_vs_float64) == (False, torch.inf, torch.inf)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_what_rounding_takes_over_the_largest_number_may_be_finite_or_infinite(dtype):
    largest = torch.finfo(dtype).max
    exact = torch.tensor([largest, -largest], dtype=torch.float64) * (1 + torch.finfo(dtype).eps)
    for sides in ([largest, -largest], [torch.inf, -torch.inf], [torch.inf, -largest]):
        assert has_same_extremes(exact, torch.tensor(sides, dtype=dtype))
    for sides in ([largest, torch.inf], [torch.nan, -largest]):
        assert not has_same_extremes(exact, torch.tensor(sides, dtype=dtype))
    assert not has_same_extremes(exact / 2, torch.tensor([torch.inf, -largest / 2], dtype=dtype))
    assert not has_same_extremes(exact * 2, torch.tensor([largest, -torch.inf], dtype=dtype))


# What roundings move, or masks leave, in one place is no measure for the rest.


LOW = torch.finfo(torch.float32).min
PADDED = torch.tensor([[1] * 6, [0, 0, 1, 1, 1, 1]]).bool()[:, None, :] & torch.ones(6, 6, dtype=torch.bool).tril()


def hidden(low: float) -> Tensor:
    """The mask of two sequences, of which the second begins with padding: its first rows are hidden whole."""
    return torch.zeros(2, 6, 6).masked_fill(~PADDED, low)


def of_mask(x: Tensor, mask: Tensor) -> Tensor:
    return ((x @ x.mT) / 4 + mask).softmax(-1) @ x


def fused(x: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], attn_mask=mask[:, None])


def of_choices(x: Tensor, mask: Tensor) -> Tensor:
    return (x + mask).log_softmax(-1)[..., :2]


def one_constant(dim: int) -> Tensor:
    x = torch.randn(6, 16)
    x.select(dim, 2).fill_(1000.1)
    return x


def distances_of(x: Tensor) -> Tensor:
    y = x.sin()
    return torch.cdist(y, y, p=1.0)


ATTENTION, PROBABILITIES = aten._scaled_dot_product_flash_attention_for_cpu.default, aten._softmax.default
ONE_PLACE: dict[str, tuple[Any, Callable[..., Tensor], Callable[[], tuple[Tensor, ...]]]] = {
    "a row hidden by the lowest number": (PROBABILITIES, of_mask, lambda: (torch.randn(2, 6, 16), hidden(LOW))),
    "a row hidden by -1e9": (PROBABILITIES, of_mask, lambda: (torch.randn(2, 6, 16), hidden(-1e9))),
    "a row hidden in fused attention": (ATTENTION, fused, lambda: (torch.randn(2, 6, 16), hidden(LOW))),
    "choices hidden by -1e9": (
        aten._log_softmax.default, of_choices, lambda: (torch.randn(4, 8), torch.tensor([0.0] * 5 + [-1e9] * 3)),
    ),
    "a constant row": (aten.native_layer_norm.default, lambda x: F.layer_norm(x, (16,)), lambda: (one_constant(0),)),
    "a constant channel": (
        aten._native_batch_norm_legit.no_stats, lambda x: F.batch_norm(x, None, None, training=True),
        lambda: (one_constant(1),),
    ),
    "pixels between others": (
        aten.grid_sampler_2d.default, lambda x, at: F.grid_sample(x, at, align_corners=False),
        lambda: (torch.randn(1, 3, 6, 6), torch.randn(1, 4, 4, 2)),
    ),
    "points that coincide": (aten._cdist_backward.default, distances_of, lambda: (torch.randn(4, 8).requires_grad_(),)),
    "an op without a definition for it": (
        aten.adaptive_max_pool2d.default, lambda x: F.adaptive_max_pool2d(x, (3, 5)),
        lambda: (torch.randn(1, 3, 8, 8),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ONE_PLACE)
def test_one_place_is_no_measure_for_the_rest(case, monkeypatch):
    target, function, inputs = ONE_PLACE[case]
    torch.manual_seed(0)
    given = inputs()
    backward = given[0].requires_grad
    assert dort_compare.compare(Of(function), given, backward=backward).verdict == "agree"
    original = registered()[target]

    def wrong(op: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(op, *args, **kwargs)
        first, *others = found if isinstance(found, tuple) else (found,)
        moved = op.Add(first, op.const(0.01, torch.float32))
        return (moved, *others) if others else moved

    monkeypatch.setitem(registry._TABLE, target, wrong)
    report = dort_compare.compare(Of(function), given, backward=backward)
    assert {cause.target for cause in report.causes} == {str(target)}, str(report)


GRADIENTS_OF_DISTANCES: dict[str, Callable[[Tensor], Tensor]] = {
    "cdist": lambda x: torch.cdist(x, x[1:] * 2, p=math.inf),
    "pdist": lambda x: F.pdist(x, p=math.inf),
}


@pytest.mark.parametrize("name", GRADIENTS_OF_DISTANCES)
def test_a_gradient_by_the_largest_difference_is_known_in_float64(name, monkeypatch):
    """Of the distances that float32 has rounded, no difference in float64 is the largest."""
    torch.manual_seed(0)
    target = getattr(aten, f"_{name}_backward").default
    model, inputs = Of(GRADIENTS_OF_DISTANCES[name]), (torch.randn(6, 3).requires_grad_(),)
    original = registered()[target]
    assert dort_compare.compare(model, inputs, backward=True).verdict == "agree"
    monkeypatch.setitem(registry._TABLE, target, lambda op, *args, **kwargs: op.Neg(original(op, *args, **kwargs)))
    report = dort_compare.compare(model, inputs, backward=True)
    assert {cause.target for cause in report.causes} == {str(target)}, str(report)


@pytest.mark.parametrize("align_corners", [True, False])
def test_reflected_pixels_do_not_hide_a_fault(align_corners, monkeypatch):
    """Pixels are whole numbers, which half a pixel outside of the image, where they are reflected, makes halves of: a
    rounding of one of these would choose another pixel."""
    torch.manual_seed(0)

    def sampled(x: Tensor, at: Tensor) -> Tensor:
        return F.grid_sample(x, at, mode="bicubic", padding_mode="reflection", align_corners=align_corners)

    operands = torch.randn(2, 3, 6, 6), torch.randn(2, 5, 5, 2)
    assert dort_compare.compare(Of(sampled), operands).verdict == "agree"
    plant(monkeypatch, aten.grid_sampler_2d.default, 1.01)
    assert [cause.target for cause in dort_compare.compare(Of(sampled), operands).causes] == [
        "aten.grid_sampler_2d.default"
    ]


@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_of_equal_keys_that_are_all_hidden_is_noise(seed, monkeypatch):
    """A rounding of the lowest number would let one of them through."""
    torch.manual_seed(seed)
    k = torch.randn(1, 1, 1, 8).expand(1, 1, 12, 8)
    operands = [torch.randn(1, 1, 7, 8).requires_grad_(), *(k.clone().requires_grad_() for _ in range(2))]
    mask = torch.full((7, 12), LOW)
    model = Of(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
    assert dort_compare.compare(model, operands, backward=True).verdict == "agree"
    target = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    original = registered()[target]

    def wrong(op: Any, *args: Any, **kwargs: Any) -> Any:
        by_query, by_key, by_value = original(op, *args, **kwargs)
        return by_query, op.Add(by_key, op.const(1e-4, torch.float32)), by_value

    monkeypatch.setitem(registry._TABLE, target, wrong)
    assert [cause.target for cause in dort_compare.compare(model, operands, backward=True).causes] == [str(target)]


@pytest.mark.parametrize("seed", [8, 21])
def test_torch_does_not_depart_where_onnx_has_the_same(seed):
    """1 + 1e-7 is rounded: torch's kernel and ours take the pixel in the middle, float64 one beside it."""
    torch.manual_seed(seed)
    operands = torch.randn(1, 2, 5, 5, 5).requires_grad_(), (torch.randn(1, 3, 3, 3, 3) * 1e-7).requires_grad_()
    sampled = Of(lambda x, at: F.grid_sample(x, at, align_corners=True))
    assert dort_compare.compare(sampled, operands, backward=True).verdict == "agree"


AT_THRESHOLDS: dict[str, tuple[Any, Callable[[Tensor], Tensor]]] = {
    "floor_divide": (aten.floor_divide.default, lambda x: x // 2),
    "fake_quantize": (
        aten.fake_quantize_per_tensor_affine_cachemask.default,
        lambda x: torch.fake_quantize_per_tensor_affine(x, 2.0, 0, -128, 127),
    ),
    "histc": (aten.histc.default, lambda x: torch.histc(x, 4, 0, 16)),
    "mode": (aten.mode.default, lambda x: x.mode()[0]),
}


@pytest.mark.parametrize("name", AT_THRESHOLDS)
def test_numbers_at_a_threshold_do_not_hide_a_fault(name, monkeypatch):
    """A rounding takes 8 // 2 to 3, and moves nothing of 7 // 2: torch's kernel and ours read the same 8."""
    target, function = AT_THRESHOLDS[name]
    x = torch.tensor([7.0, 5.0, 5.0, 8.0, 9.5, 13.0])
    assert dort_compare.compare(Of(function), (x,)).verdict == "agree"
    original = registered()[target]

    def wrong(op: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(op, *args, **kwargs)
        first, *others = found if isinstance(found, Sequence) else (found,)
        return (op.Mul(first, 0.9), *others) if others else op.Mul(first, 0.9)

    monkeypatch.setitem(registry._TABLE, target, wrong)
    assert [cause.target for cause in dort_compare.compare(Of(function), (x,)).causes] == [str(target)]


WHOLE = torch.tensor([[5.0, 3.0, 4.0, 7.0], [1.0, 1.0, 1.0, 7.0]])
ALONE: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...], float]] = {
    "floor_divide": (lambda x: x // 2, (torch.tensor([8.0]),), 3.0),
    "fake_quantize": (
        lambda x: torch.fake_quantize_per_tensor_affine(x, 2.0, 0, -128, 127), (torch.tensor([5.0]),), 6.0,
    ),
    "mode": (lambda x: x.mode().values, (torch.tensor([[5.0, 5.0, 3.0, 4.0, 7.0, 7.0]]),), 7.0),
    "hardtanh_backward": (lambda g, x: aten.hardtanh_backward(g, x, -1, 1), (WHOLE, torch.ones(2, 4)), 1.0),
    "hardshrink_backward": (lambda g, x: aten.hardshrink_backward(g, x, 1.0), (WHOLE, torch.ones(2, 4)), 1.0),
    "cdist": (lambda x, y: torch.cdist(x, y, p=0.0), (WHOLE, WHOLE.flip(0)), 7.0),
}  # fmt: skip
"""Functions of numbers of which all lie at a threshold, and what stands in the place of their results."""


@pytest.mark.parametrize("name", ALONE)
def test_numbers_at_a_threshold_do_not_hide_a_fault_of_their_own(name):
    function, operands, wrong = ALONE[name]
    graph = make_fx(function)(*operands)
    *placeholders, output = (node for node in graph.graph.nodes if node.op in ("placeholder", "output"))
    replay = Replay({node.name: value for node, value in zip(placeholders, operands, strict=True)})
    right = graph(*operands)
    value = torch.full_like(right, wrong)
    found = local_error(replay, output.args[0], right, value, distance(right, value))
    assert not found.is_noise
    assert not found.torch_departs


@pytest.mark.parametrize("steps", [17, 33])
def test_a_matrix_that_many_roundings_make_singular_hides_no_fault(steps):
    """Eight roundings at once lead next to a singular matrix, to solutions out of all proportion."""
    a, b = torch.tensor([[1.0, 1.0], [1.0, 1.0 + steps * 2.0**-23]]), torch.tensor([1.0, 2.0])
    graph = make_fx(lambda a, b: aten._linalg_solve_ex(a, b)[0])(a, b)
    (output,) = graph.graph.find_nodes(op="output")
    right = graph(a, b)
    found = local_error(Replay({"a_1": a, "b_1": b}), output.args[0], right, 6 * right, distance(right, 6 * right))
    assert not found.is_noise


def test_whole_numbers_that_float32_does_not_hold_are_rounded():
    """A product of some 1e9, all but cancelled by a third: its roundings are what is left."""
    torch.manual_seed(0)
    a, b = (torch.randint(10000, 90000, (64,)).float() for _ in range(2))
    report = dort_compare.compare(Of(lambda a, b: torch.addcmul(-(a * b), a, b) + 1e8), (a, b))
    assert report.verdict == "agree", str(report)


def test_nothing_is_blamed_beside_a_mask_where_float64_is_not_known(graphs_of):
    (graph,) = graphs_of(lambda x: x.log_softmax(-1), torch.randn(4, 8))
    (node,) = graph.graph_module.graph.find_nodes(op="call_function", target=aten._log_softmax.default)
    expected = torch.randn(4, 8)
    expected[:, :2] = -1e9
    value = expected + 3e-5
    assert local_error(Replay({}), node, expected, value, distance(expected, value)).is_noise


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
