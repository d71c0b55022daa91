"""Random rounding: what is inexact moves by a rounding or so, what is exact holds still."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from dort_compare.dtypes import HALF
from dort_compare.trace.shaken import shaken
from dort_compare.trace.watched import run_watched

GraphsOf = Callable[..., Any]


def values(run: Any, graph: Any) -> dict[str, Tensor]:
    return values_of(run, graph.graph_module, graph.runs[0].inputs)


def values_of(run: Any, graph_module: fx.GraphModule, inputs: Iterable[Tensor]) -> dict[str, Tensor]:
    seen: dict[str, Tensor] = {}
    run(graph_module, list(inputs), lambda node, value: seen.__setitem__(node.name, value))
    return seen


def calls(x: Tensor) -> Tensor:
    y = torch.softmax(x, -1) * 1.1
    mask = (y == y.amax(-1, keepdim=True)).to(x.dtype)
    return torch.cat([mask, torch.where(x > 0, x, 0.0), y.transpose(0, 1).reshape(x.shape)])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_only_what_rounds_moves_and_only_by_roundings(graphs_of: GraphsOf, dtype: torch.dtype) -> None:
    (graph,) = graphs_of(calls, torch.randn(16, 16).to(dtype))
    plain, moved = values(run_watched, graph), values(shaken(0), graph)
    assert plain.keys() == moved.keys()
    assert all(plain[name].dtype == moved[name].dtype and plain[name].shape == moved[name].shape for name in plain)
    (softmax,) = (name for name in plain if "softmax" in name)
    gap = (plain[softmax].double() - moved[softmax].double()).abs()
    assert gap.count_nonzero() > 0
    width = 3 if dtype in HALF else 12
    slack = 0.0 if dtype == torch.float64 else 1e-8
    assert (gap <= width * torch.finfo(dtype).eps * plain[softmax].double().abs() + slack).all()
    (where,) = (name for name in plain if name.startswith("where"))
    assert torch.equal(plain[where], moved[where])
    (equal,) = (name for name in plain if name.startswith("eq"))
    assert (moved[equal].sum(-1) >= 1).all()  # a maximum is one of the elements


def test_what_was_rounded_to_an_integer_moves_only_towards_the_exact_result(graphs_of: GraphsOf) -> None:
    x = torch.linspace(-12.0, 12.0, 4096)
    (graph,) = graphs_of(torch.tanh, x)
    plain, moved = values(run_watched, graph)["tanh"], values(shaken(0), graph)["tanh"]
    bound = plain.abs() == 1
    assert (moved[bound] != plain[bound]).any()
    assert (moved.abs() <= 1).all()


def test_what_is_below_the_smallest_normal_number_moves_too(graphs_of: GraphsOf) -> None:
    (graph,) = graphs_of(lambda x: x * 1e-41, torch.linspace(1.0, 2.0, 256))
    gap = (values(run_watched, graph)["mul"] - values(shaken(0), graph)["mul"]).abs()
    assert 0 < gap.max() <= 2 * torch.finfo(torch.float32).smallest_normal * torch.finfo(torch.float32).eps


def test_few_move_in_every_second_sample_and_a_seed_repeats_itself(graphs_of: GraphsOf) -> None:
    (graph,) = graphs_of(lambda x: x * x, torch.randn(64, 64))
    plain = values(run_watched, graph)["mul"]
    share = [(values(shaken(seed), graph)["mul"] != plain).float().mean().item() for seed in range(4)]
    assert all(many > 0.9 for many in share[::2])
    assert all(0.02 < few < 0.12 for few in share[1::2])
    assert torch.equal(values(shaken(3), graph)["mul"], values(shaken(3), graph)["mul"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.float8_e4m3fn])
def test_what_another_graph_computes_again_is_rounded_alike(dtype: torch.dtype) -> None:
    """As when backward computes again what forward has computed."""

    def scaled(x: Tensor) -> Tensor:
        return (x if x.dtype.is_complex else x.float()).abs() * 1.1

    x = torch.randn(64).to(dtype)
    forward, backward = make_fx(scaled)(x), make_fx(lambda x: (x.to(torch.complex128).sin(), scaled(x)))(x)
    for seed in range(4):
        run = shaken(seed)
        first, second = (values_of(run, graph, [x])["mul"] for graph in (forward, backward))
        assert torch.equal(first, second)
        assert not torch.equal(first, scaled(x))


BESIDE = {
    "nothing": torch.empty(0, 3),
    "uint16": torch.ones(3, dtype=torch.uint16),
    "sparse": torch.eye(3).to_sparse(),
    "one element, two apart": torch.ones(1).as_strided((1,), (2,)),
    "turned": torch.randn(3, 2).t(),
    "expanded": torch.ones(1).expand(4),
    "negated": torch.ones(2, dtype=torch.complex64).conj().imag,
}


@pytest.mark.parametrize("beside", BESIDE.values(), ids=BESIDE)
def test_whatever_an_op_reads_it_may_round(beside: Tensor) -> None:
    x = torch.randn(64)
    graph = make_fx(lambda x, beside: (x * 1.1, beside.clone()))(x, beside)
    assert not torch.equal(values_of(shaken(0), graph, [x, beside])["mul"], x * 1.1)


def test_other_operands_are_rounded_otherwise() -> None:
    """Also such as only stand in another order, or come in pairs."""
    x = torch.randn(2048, generator=torch.Generator().manual_seed(0))
    gaps = []
    for each in (x.repeat(2), (x * 1.25).repeat(2), x.repeat(2).roll(1)):
        graph = make_fx(lambda x: x * 1.1)(each)
        gaps.append(values_of(shaken(0), graph, [each])["mul"].double() - each.double() * 1.1)
    signs = [gap.sign() for gap in gaps]
    assert all((one == other).float().mean() < 0.7 for one, other in itertools.combinations(signs, 2))


def test_bounds_are_kept(graphs_of: GraphsOf) -> None:
    (graph,) = graphs_of(lambda x: torch.log(1 - torch.sigmoid(x)), torch.linspace(0, 12, 256).bfloat16())
    for seed in range(4):
        moved = values(shaken(seed), graph)
        assert (moved["sigmoid"] <= 1).all()
        assert not moved["log"].isnan().any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_sum_that_cancels_moves_by_roundings_of_its_terms(graphs_of: GraphsOf, dtype: torch.dtype) -> None:
    half = torch.randn(32).bfloat16().to(dtype)
    (graph,) = graphs_of(lambda x: x.sum(0, keepdim=True) + x.round().sum(0, keepdim=True), torch.cat([half, -half]))
    plain, moved = values(run_watched, graph), values(shaken(0), graph)
    assert plain["sum_1"] == plain["sum_2"] == moved["sum_2"] == 0
    assert 0 < moved["sum_1"].abs() <= 9 * torch.finfo(dtype).eps * half.abs().max()


def test_a_sum_of_zeros_beside_one_of_large_terms_holds_still(graphs_of: GraphsOf) -> None:
    x = torch.stack([torch.zeros(32), 1e6 * torch.randn(32)])
    (graph,) = graphs_of(lambda x: x.sum(-1) + (x * x).sum([1], keepdim=True), x)
    for seed in range(8):
        moved = values(shaken(seed), graph)
        assert moved["sum_1"][0] == moved["sum_2"][0] == 0


def test_a_gradient_that_cancels_moves_by_roundings_of_its_operands(graphs_of: GraphsOf) -> None:
    """Attention to one token: its softmax is 1 whatever the query is."""
    query, key, value = (torch.randn(1, 2, 1, 8, generator=torch.Generator().manual_seed(i)) for i in range(3))

    def gradient(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)
        backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        return backward(q.cos(), q, k, v, out, lse, 0.0, False)[0].abs()

    (graph,) = graphs_of(gradient, query, key, value)
    plain, *moved = (values(run, graph)["abs_1"] for run in (run_watched, *(shaken(seed) for seed in range(4))))
    assert plain.abs().max() < 1e-6
    assert 1e-9 < max(each.abs().max() for each in moved) < 1e-5


def test_a_gradient_that_cancels_to_less_than_a_digit_moves_by_roundings_of_its_operands(graphs_of: GraphsOf) -> None:
    x, grad = torch.randn(16, 2), torch.randn(16, 2)  # of two elements each, nearly all of the gradient cancels
    mean, rstd = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, correction=0).rsqrt()

    def gradient(g: Tensor, x: Tensor, mean: Tensor, rstd: Tensor) -> Tensor:
        backward = torch.ops.aten.native_layer_norm_backward
        return backward(g, x, [2], mean, rstd, None, None, [True, False, False])[0].abs()

    (graph,) = graphs_of(gradient, grad, x, mean, rstd)
    first, second = (values(shaken(seed), graph)["abs_1"] for seed in (0, 2))
    moved, eps = (first - second).abs(), torch.finfo(torch.float32).eps
    is_own = moved <= 20 * eps * first.abs()
    assert is_own.any()
    assert not is_own.all()
    assert (moved[~is_own] > first[~is_own] / 100).all()
    assert (moved <= 64 * eps * grad.abs().max() * rstd).all()


@pytest.mark.parametrize("op", ["var", "mm", "cumsum"])
def test_what_cancels_within_an_op_moves_by_roundings_of_its_operands(graphs_of: GraphsOf, op: str) -> None:
    half = 1e4 + torch.randn(64)
    x, ones = torch.cat([half, -half]), torch.ones(128, 1)
    functions = {"var": lambda x: x[:64].var(), "mm": lambda x: x[None] @ ones, "cumsum": lambda x: x.cumsum(0)[-1]}
    (graph,) = graphs_of(functions[op], x)
    plain, *moved = ([*values(run, graph).values()][-1] for run in (run_watched, *(shaken(seed) for seed in range(32))))
    rounding = torch.finfo(torch.float32).eps * 1e4
    assert rounding / 8 < max((each - plain).abs().max() for each in moved) < 128 * rounding


NORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "batch": lambda x: torch.nn.functional.batch_norm(x, None, None, training=True),
    "layer": lambda x: torch.nn.functional.layer_norm(x, (2048,)),
    "group": lambda x: torch.nn.functional.group_norm(x, 2),
}


@pytest.mark.parametrize("norm", NORMS)
def test_the_mean_of_a_norm_is_rounded_and_moves_all_alike(graphs_of: GraphsOf, norm: str) -> None:
    """Far from 0, a rounding of the mean is much beside the spread; those of the terms cancel in the mean of many."""
    x = 1 + 1e-2 * torch.randn(2, 8, 2048)
    (graph,) = graphs_of(NORMS[norm], x)
    first, *others = ([*values(shaken(seed), graph).values()][-1] for seed in range(16))
    dims = {"batch": (0, 2), "layer": (2,), "group": (2,)}[norm]
    shift = max((each - first).mean(dims).abs().max() for each in others)
    rounding = torch.finfo(torch.float32).eps / 1e-2
    assert rounding / 3 < shift < 3 * rounding


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_roundings_inside_of_an_op_move_what_cancels_there(graphs_of: GraphsOf, dtype: torch.dtype) -> None:
    """Far out gelu is x times 1 + tanh(x), nearly zero, which float32 knows to within roundings of 1."""
    x = -4 + 0.1 * torch.randn(64, 32, dtype=torch.float64)
    (graph,) = graphs_of(lambda x: torch.nn.functional.gelu(x, approximate="tanh"), x.to(dtype))
    first, *others = (values(shaken(seed), graph)["gelu"] for seed in range(4))
    fine = torch.float64 if dtype == torch.float64 else torch.float32
    inside, own = 4 * torch.finfo(fine).eps, torch.finfo(dtype).eps * first.abs().max()
    furthest = max((each - first).abs().max() for each in others)
    assert inside / 8 < furthest < 8 * max(inside, own)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_ops_of_elements_keep_their_bounds(graphs_of: GraphsOf, dtype: torch.dtype) -> None:
    x = 40 * torch.randn(4096, dtype=dtype)
    (graph,) = graphs_of(lambda x: x.sigmoid() + x.tanh() + torch.nn.functional.softplus(x), x)
    for seed in range(4):
        moved = values(shaken(seed), graph)
        assert (moved["sigmoid"] == moved["sigmoid"].clamp(0, 1)).all()
        assert (moved["tanh"].abs() <= 1).all()
        assert (moved["softplus"].isfinite() & (moved["softplus"] >= 0)).all()


def test_what_is_only_chosen_holds_still_where_terms_cancel(graphs_of: GraphsOf) -> None:
    (graph,) = graphs_of(
        lambda x: torch.cat([x.amax(-1), x.topk(2)[0].view(-1), x.max(-1)[0], x.relu().amin(-1)]), torch.randn(8, 8)
    )
    plain, moved = values(run_watched, graph), values(shaken(0), graph)
    assert all(torch.equal(plain[name], moved[name]) for name in plain)


def test_a_gradient_that_goes_elsewhere_holds_still(graphs_of: GraphsOf) -> None:
    tokens = torch.tensor([1, 3, 3])

    def gradient(grad: Tensor) -> Tensor:
        return torch.ops.aten.embedding_dense_backward(grad * 1.1, tokens, 6, -1, False)

    (graph,) = graphs_of(gradient, torch.randn(3, 4))
    moved = [values(shaken(seed), graph)["embedding_dense_backward"] for seed in range(4)]
    assert all(torch.equal(each == 0, torch.tensor([1, 0, 1, 0, 1, 1]).bool()[:, None].expand(6, 4)) for each in moved)


def test_counts_hold_still(graphs_of: GraphsOf) -> None:
    (graph,) = graphs_of(lambda x: (x > 0).sum(-1, dtype=torch.float32), torch.randn(3, 8))
    assert torch.equal(values(shaken(0), graph)["sum_1"], values(run_watched, graph)["sum_1"])


def test_random_ops_draw_what_they_draw() -> None:
    module = torch.fx.symbolic_trace(lambda x: torch.ops.aten.bernoulli.p(x, 0.5))
    drawn = []
    for run in (run_watched, shaken(0)):
        torch.manual_seed(0)
        drawn.append(run(module, [torch.ones(50)], lambda node, value: None))
    assert torch.equal(*drawn)


SORTS: list[Callable[[Tensor], Any]] = [
    lambda x: x.sort(0),
    lambda x: x.sort(dim=0, stable=False),
    lambda x: x.topk(5),
    lambda x: x.kthvalue(3, dim=0, keepdim=True),
    lambda x: x.median(0, keepdim=True),
]


@pytest.mark.parametrize("sort", SORTS)
def test_sorts_meet_equal_elements_in_an_order_by_chance(graphs_of: GraphsOf, sort: Callable[[Tensor], Any]) -> None:
    x = torch.randint(0, 3, (40, 40), generator=torch.Generator().manual_seed(0)).float()
    (graph,) = graphs_of(lambda x: torch.stack([part.double() for part in sort(x)]), x)
    dim = 1 if "topk" in graph.graph_module.code else 0
    plain, moved = values(run_watched, graph), values(shaken(0), graph)
    (one, before), (other, after) = ((found["getitem"], found["getitem_1"]) for found in (plain, moved))
    assert torch.equal(one, other)
    assert torch.equal(x.gather(dim, after), one)
    assert not torch.equal(before, after)


def test_a_stable_sort_keeps_equal_elements_in_order(graphs_of: GraphsOf) -> None:
    x = torch.randint(0, 3, (40, 40), generator=torch.Generator().manual_seed(0))
    (graph,) = graphs_of(lambda x: x.sort(dim=0, stable=True).indices + 1, x)
    assert torch.equal(values(shaken(0), graph)["add"], values(run_watched, graph)["add"])


def test_a_number_alone_is_sorted_too(graphs_of: GraphsOf) -> None:
    (graph,) = graphs_of(lambda x: x.sum().sort().indices + 1, torch.ones(3))
    assert values(shaken(0), graph)["add"].item() == 1
