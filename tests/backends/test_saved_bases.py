"""What a backward graph reads is saved in memory as a session takes it, and no view of it is copied in a step."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn.functional import conv2d, gelu, scaled_dot_product_attention

from dort_compare import DebugBackend, compare
from dort_compare.backends.saved_bases import save_bases
from dort_compare.runtime.binding import Binding

Function = Callable[[Tensor], Any]
WEIGHT = torch.linspace(-1, 1, 36, dtype=torch.float64).view(6, 6)


def projected(x: Tensor, columns: int) -> Tensor:
    return x @ WEIGHT.to(x.dtype).repeat(1, columns)


def of_a_transposed(x: Tensor) -> Tensor:
    return projected(x, 1).mT.sin().sum(-1)


def of_all_parts(x: Tensor) -> Tensor:
    first, second, third = projected(x, 3).split(6, -1)
    return first.sin() * second.cos() * third.exp()


def of_heads(x: Tensor) -> Tensor:
    q, k, v = (part.unflatten(-1, (2, 3)).transpose(1, 2) for part in projected(x, 3).chunk(3, -1))
    heads = scaled_dot_product_attention(q, k, v, is_causal=True)
    return projected(heads.transpose(1, 2).flatten(-2), 1)


def of_what_is_broadcast(x: Tensor) -> Tensor:
    return projected(x, 1).mean(-1, keepdim=True).expand(-1, -1, 6).sin()


def of_a_value_and_its_transposed(x: Tensor) -> Tensor:
    y = projected(x, 1)
    return y.sin().sum(-1) + y.mT.sin().sum(-1)


def of_a_transposed_argument(x: Tensor) -> Tensor:
    return x.mT.sin().sum(-1)


def of_a_row_that_repeats(x: Tensor) -> Tensor:
    return projected(x, 1).select(-1, 2).sin().unsqueeze(-1) * projected(x, 1).select(1, 0).unsqueeze(1)


def of_one_part(x: Tensor) -> Tensor:
    y = projected(x, 3)
    return y[..., 1:3] * y[..., 4:6]


def of_a_view_that_is_returned(x: Tensor) -> tuple[Tensor, Tensor]:
    transposed = projected(x, 1).mT
    return transposed.sin(), transposed


def of_attention_that_is_returned(x: Tensor) -> tuple[Tensor, Tensor]:
    heads = x.unflatten(-1, (2, 3)).transpose(1, 2)
    heads = scaled_dot_product_attention(heads, heads, heads)
    return heads.transpose(1, 2).flatten(-2).sin(), heads


def of_channels_last(x: Tensor) -> Tensor:
    weight = WEIGHT.to(x.dtype).view(6, 3, 2, 1)
    return conv2d(x.unflatten(-1, (2, 3)).movedim(-1, 1), weight).sin().mean((-2, -1))


NOTHING_TO_COPY = [of_a_transposed, of_all_parts, of_heads, of_what_is_broadcast, of_a_value_and_its_transposed,
                   of_a_transposed_argument, of_channels_last]  # fmt: skip
REST = [of_one_part, of_a_row_that_repeats, of_a_view_that_is_returned, of_attention_that_is_returned]


def operand(dtype: torch.dtype = torch.float32) -> Tensor:
    draw = torch.Generator().manual_seed(0)
    return torch.randn(2, 6, 6, generator=draw, dtype=torch.float64).to(dtype).requires_grad_()


def loss(function: Function, x: Tensor) -> Tensor:
    results = function(x)
    return torch.stack([y.square().sum() for y in (results if isinstance(results, tuple) else (results,))]).sum()


def assert_near(found: Tensor, exact: Tensor) -> None:
    torch.testing.assert_close(found, exact, rtol=0, atol=1e-5 * exact.abs().max().item())


def gradient(function: Function, dtype: torch.dtype) -> Tensor:
    x = operand(dtype)
    return torch.autograd.grad(loss(function, x), x)[0].double()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [*NOTHING_TO_COPY, *REST])
def test_gradients(function: Function, dynamic: bool) -> None:
    exact = gradient(function, torch.float64)
    for _ in range(2):
        found = gradient(torch.compile(function, backend="dort", dynamic=dynamic), torch.float32)
        assert_near(found, exact)


@pytest.mark.parametrize("function", NOTHING_TO_COPY)
def test_nothing_is_copied(function: Function, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Tensor] = []
    run = Binding.run

    def spy(self: Binding, tensors: Sequence[Tensor], *args: Any) -> list[Tensor]:
        taken.extend(tensors)
        return run(self, tensors, *args)

    monkeypatch.setattr(Binding, "run", spy)
    gradient(torch.compile(function, backend="dort", dynamic=False), torch.float32)
    assert taken
    assert all(tensor.is_contiguous() for tensor in taken)


@pytest.mark.parametrize("function", [*NOTHING_TO_COPY, *REST])
def test_no_more_is_kept_than_without_it(function: Function, monkeypatch: pytest.MonkeyPatch) -> None:
    def kept(backend: DebugBackend) -> int:
        tensors: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            tensors[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            results = torch.compile(function, backend=backend, dynamic=False)(operand())
        for result in results if isinstance(results, tuple) else (results,):
            tensors.pop(result.untyped_storage().data_ptr(), None)
        return sum(tensors.values())

    assert kept(DebugBackend(rewrites=True)) <= kept(DebugBackend())


def test_what_is_saved_beside_a_view_of_it_stays_in_its_place() -> None:
    graphs = [fx.Graph(), fx.Graph()]
    x = graphs[0].placeholder("x")
    y = graphs[0].call_function(torch.ops.aten.exp.default, (x,))
    view = graphs[0].call_function(torch.ops.aten.t.default, (y,))
    graphs[0].output((y, view, x, y))
    value = torch.rand(2, 3)
    x.meta, y.meta, view.meta = {"val": value}, {"val": value.exp()}, {"val": value.exp().t()}
    named = [graphs[1].placeholder(node.name) for node in (view, x, y)]
    graphs[1].output(tuple(graphs[1].call_function(torch.ops.aten.neg.default, (node,)) for node in named))
    forward, backward = (fx.GraphModule(nn.Module(), graph) for graph in graphs)

    save_bases(forward, backward, 1)
    assert forward.graph.output_node().args == ((y, x, y),)
    expected = (-value.exp().t(), -value, -value.exp())
    assert all(map(torch.equal, backward(*forward(value)[1:]), expected))


class Written(nn.Module):
    """Saves what it writes, or a view of it, which is a copy then."""

    def __init__(self, is_transposed: bool) -> None:
        super().__init__()
        self.is_transposed = is_transposed

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        y = x * state.clone() if self.is_transposed else x @ state.clone()
        state.add_(1)
        return y


@pytest.mark.parametrize("is_transposed", [False, True])
def test_what_is_written_in_place(is_transposed: bool) -> None:
    torch.manual_seed(0)
    state, found = torch.rand(6, 6), []
    for backend in ("eager", "dort"):
        x, given = operand(), state.clone()
        torch.compile(Written(is_transposed), backend=backend)(
            x, given.t() if is_transposed else given
        ).sum().backward()
        found.append((x.grad, given))
    torch.testing.assert_close(found[1], found[0])


def test_sparse_activations() -> None:
    weight = torch.eye(6)

    def function(x: Tensor) -> Tensor:
        return (x[0].relu().to_sparse() @ weight.to(x.dtype)).to_dense()

    assert_near(gradient(torch.compile(function, backend="dort"), torch.float32), gradient(function, torch.float64))


def test_views_are_made_where_they_are_read() -> None:
    """Those of the last layer in the first piece, and not in it those of the first layer."""

    def function(x: Tensor) -> Tensor:
        both = projected(x, 2).split(6, -1)
        y = both[0].mT.sin()
        for _ in range(5):
            y = projected(y, 1)
        return y * both[1].mT.cos()

    backend = DebugBackend(rewrites=True)
    gradient(torch.compile(function, backend=backend, dynamic=False), torch.float32)
    calls = list(backend.graphs[-1].graph_module.graph.nodes)
    made = [i for i, node in enumerate(calls) if node.target is torch.ops.aten.transpose.int
            and node.args[0].target is operator.getitem]  # fmt: skip
    products = [i for i, node in enumerate(calls) if node.target is torch.ops.aten.mm.default]
    assert len(made) == 2
    assert made[0] < products[0] < made[1]


def test_a_small_part_of_a_value_is_saved_alone() -> None:
    """Where saved tensors are packed, to the disk or to another device, all of it would be."""
    backend = DebugBackend(rewrites=True)
    gradient(torch.compile(of_one_part, backend=backend, dynamic=False), torch.float32)
    taken = backend.graphs[-1].graph_module.graph.find_nodes(op="placeholder")
    assert 2 * 6 * 18 not in [node.meta["val"].numel() for node in taken]


def test_only_backends_with_rewrites_make_views_in_the_backward_graph() -> None:
    splits = []
    for rewrites in (False, True):
        backend = DebugBackend(rewrites=rewrites)
        gradient(torch.compile(of_heads, backend=backend, dynamic=False), torch.float32)
        backward = backend.graphs[-1].graph_module.graph
        splits.append(len(backward.find_nodes(op="call_function", target=torch.ops.aten.split.Tensor)))
    assert splits == [0, 1]


def test_a_graph_that_is_kept_can_be_differentiated_again() -> None:
    x = operand()
    result = loss(torch.compile(of_heads, backend="dort"), x)
    (once,) = torch.autograd.grad(result, x, retain_graph=True)
    (again,) = torch.autograd.grad(result, x)
    assert torch.equal(once, again)


@torch.library.custom_op("dort_compare_tests::exponential_of_heads", mutates_args=())
def exponential_of_heads(heads: Tensor) -> Tensor:
    """Its ``view`` needs the memory that torch's kernel of attention leaves."""
    return heads.transpose(1, 2).view(2, 6, 6).exp()


@exponential_of_heads.register_fake
def _(heads: Tensor) -> Tensor:
    return heads.new_empty(2, 6, 6)


def _gradient(ctx: Any, grad: Tensor) -> Tensor:
    return (grad * exponential_of_heads(*ctx.saved_tensors)).unflatten(-1, (2, 3)).transpose(1, 2)


exponential_of_heads.register_autograd(
    _gradient, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs)
)


def test_pieces_that_run_in_torch_find_the_strides_that_were_traced() -> None:
    def function(x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (2, 3)).transpose(1, 2) for part in projected(x, 3).chunk(3, -1))
        return exponential_of_heads(scaled_dot_product_attention(q, k, v))

    backend = DebugBackend(rewrites=True)
    found = gradient(torch.compile(function, backend=backend, dynamic=False), torch.float32)
    assert [each.phase for each in backend.fallbacks] == ["forward", "backward"]
    assert_near(found, gradient(function, torch.float64))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(6, 18), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (2, 3)).transpose(1, 2) for part in self.inner(x).split(6, -1))
        return gelu(self.outer(scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)))


def test_the_verdict_on_it_is_clean() -> None:
    torch.manual_seed(0)
    report = compare(Block(), (operand(),), backward=True, rewrites=True, optimized=True)
    assert report.verdict == "agree", report.causes


def test_a_view_that_is_no_longer_saved_is_not_computed():
    backend = DebugBackend(rewrites=True)
    x = torch.randn(2, 6, 6, requires_grad=True)
    torch.compile(of_a_transposed, backend=backend)(x).sum().backward()
    graph = backend.graphs[0].graph_module.graph
    assert not [node for node in graph.nodes if node.op == "call_function" and not node.users]
