"""A graph is cut into few pieces that can run one after the other, and computes what it computed."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from dort_compare.backends.cut import split_graph
from dort_compare.backends.levels import is_light
from dort_compare.backends.pieces import pieces_of

aten = torch.ops.aten


def cut(function: Callable[..., Any], *refused: str, count: int = 1) -> fx.GraphModule:
    graph = make_fx(function, tracing_mode="fake")(*(torch.rand(3, 3) for _ in range(count)))
    names = {node.name for node in graph.graph.nodes}
    assert names >= set(refused), names
    return split_graph(graph, dict.fromkeys(refused, "no lowering"))


def told(split: fx.GraphModule) -> list[str]:
    """What the cut graph calls, in order: the nodes of a piece in brackets."""
    calls = []
    for node in split.graph.nodes:
        if node.op == "call_module":
            piece = split.get_submodule(str(node.target))
            calls.append(f"[{' '.join(n.name for n in piece.graph.nodes if n.op == 'call_function')}]")
        elif node.op == "call_function" and node.target is not operator.getitem:
            calls.append(node.name)
    return calls


def test_the_given_graph_is_not_cut() -> None:
    graph = make_fx(lambda x: torch.erfinv(x * 2) + 1, tracing_mode="fake")(torch.rand(3))
    before = graph.code
    assert told(split_graph(graph, {"erfinv": "no lowering"})) == ["[mul]", "erfinv", "[add]"]
    assert graph.code == before


def test_branches_between_the_same_nodes_share_a_piece() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.erfinv(x + 1)
        return y.sin() * 2, y.cos() * 3

    split = cut(function, "erfinv")
    assert told(split) == ["[add]", "erfinv", "[sin mul cos mul_1]"]


def test_the_graphs_of_branches_lie_in_the_piece_that_reads_them_alone() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, torch.cos, torch.sin, (x * 2,)).erfinv() + 1

    split = cut(function, "erfinv")
    assert told(split) == ["[sum_1 gt mul cond getitem]", "erfinv", "[add]"]
    assert dict(split.named_children()).keys() == pieces_of(split).keys()
    assert len(dict(split.piece_0.named_children())) == 2


def test_what_needs_the_inputs_alone_waits_for_its_reader() -> None:
    """As derivatives of saved activations do in a backward graph."""

    def function(x: Tensor, saved: Tensor) -> Tensor:
        derivative = 1 - saved * saved
        return torch.erfinv(x * 2) * derivative

    assert told(cut(function, "erfinv", count=2)) == ["[mul_1]", "erfinv", "[mul rsub mul_2]"]


def test_views_of_what_torch_computes_stay_in_torch() -> None:
    split = cut(lambda x: torch.erfinv(torch.erfinv(x).t()[1:]), "erfinv", "erfinv_1")
    assert told(split) == ["erfinv", "t", "slice_1", "erfinv_1"]


def test_random_nodes_keep_their_order() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.bernoulli(torch.sigmoid(x)), torch.rand(3, 3)

    assert told(cut(function, "bernoulli", "rand")) == ["[sigmoid]", "bernoulli", "rand"]


class Pieces(fx.Interpreter):
    """Runs a cut graph, all of it laid out as torch traced it, and knows what pieces take and return strided."""

    def __init__(self, split: fx.GraphModule) -> None:
        super().__init__(split)
        self.strided: list[Tensor] = []
        self.returned: list[Tensor] = []

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, Tensor) and n.op != "output":
            assert (value.shape, value.stride()) == (n.meta["val"].shape, n.meta["val"].stride()), n
        return value

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        results = super().call_module(target, args, kwargs)
        self.strided += [each for each in args if not each.is_contiguous()]
        self.returned += [each for each in results if not each.is_contiguous()]
        return results


def run(split: fx.GraphModule, *inputs: Tensor) -> tuple[Any, list[Tensor]]:
    interpreter = Pieces(split)
    return interpreter.run(*inputs), interpreter.strided


def is_expanded(tensor: Tensor) -> bool:
    return 0 in tensor.stride()


def test_a_piece_makes_the_views_that_it_reads() -> None:
    """Torch would copy one that is not contiguous for it; here they are of an input, of another piece and of torch."""

    def function(x: Tensor, y: Tensor) -> Tensor:
        early = (x * 2).expand(2, 3, 3).transpose(0, 2)[1:]
        between = torch.erfinv(x + 1)
        return (between.t() @ y.t() + early.sum(0)[:, :1]) * 3

    split = cut(function, "erfinv", count=2)
    inputs = torch.rand(3, 3) - 1, torch.rand(3, 3)
    result, strided = run(split, *inputs)
    assert torch.allclose(result, function(*inputs))
    assert strided == []


def test_what_torch_lays_out_in_another_order_is_handed_as_it_lies() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.erfinv(x.t()).sum(0).exp() + torch.erfinv(x.t()).t()[1:].exp()

    split = cut(function, "erfinv", "erfinv_1")
    x = torch.rand(3, 3)
    result, strided = run(split, x)
    assert torch.equal(result, function(x))
    assert strided == []


def test_what_lies_in_another_order_is_returned_as_it_lies() -> None:
    """Once, though the graph has it in that order already."""

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.t() * 2
        return torch.erfinv(y), y.t().clone()

    x, pieces = torch.rand(3, 3) / 4, Pieces(cut(function, "erfinv"))
    for found, right in zip(pieces.run(x), function(x), strict=True):
        assert torch.equal(found, right)
    assert pieces.strided == pieces.returned == []


def test_a_clone_in_yet_another_order_is_not_what_lies_contiguous() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.repeat(4, 1).view(3, 2, 3, 2).permute(0, 2, 3, 1) * 2
        return torch.erfinv(y), y.permute(0, 3, 1, 2).clone(memory_format=torch.channels_last)

    x = torch.rand(3, 3) / 4
    results, strided = run(cut(function, "erfinv"), x)
    for found, right in zip(results, function(x), strict=True):
        assert torch.equal(found, right)
    assert strided == []


def random_graph(seed: int, size: int) -> tuple[fx.GraphModule, dict[str, str]]:
    """Sums, products, transposes and pairs of values drawn from those before; a third of the calls is refused."""
    draw = random.Random(seed)
    graph = fx.Graph()
    nodes = [graph.placeholder(f"x{i}") for i in range(3)]
    for node in nodes:
        node.meta["val"] = torch.empty(3, 3)
    refused = {}

    def call(target: Any, *arguments: Any) -> fx.Node:
        made = graph.call_function(target, arguments)
        made.meta["val"] = target(*fx.map_arg(arguments, lambda each: each.meta["val"]))
        return made

    for _ in range(size):
        target = draw.choice([aten.add.Tensor, aten.mul.Tensor, aten.t.default, aten.max.dim])
        arity = 2 if target in (aten.add.Tensor, aten.mul.Tensor) else 1
        operands = tuple(draw.choice(nodes[-8:]) for _ in range(arity))
        node = call(target, *operands, 1, True) if target is aten.max.dim else call(target, *operands)
        if draw.random() < 0.3:
            refused[node.name] = "no lowering"
        if target is aten.max.dim:
            node = call(aten.expand.default, call(operator.getitem, node, 0), [3, 3])
        nodes.append(node)
    graph.output(tuple(draw.sample(nodes, 5)))
    return fx.GraphModule(torch.nn.Module(), graph), refused


@pytest.mark.parametrize("seed", range(40))
def test_a_cut_graph_computes_what_it_computed(seed: int) -> None:
    graph, refused = random_graph(seed, size=30)
    split = split_graph(graph, refused)
    split.graph.lint()
    inputs = [torch.randn(3, 3).clamp(-1, 1) for _ in range(3)]
    results, strided = run(split, *inputs)
    for got, expected in zip(results, graph(*inputs), strict=True):
        assert torch.equal(got, expected)
        assert got.stride() == expected.stride()
    assert all(is_expanded(tensor) for tensor in strided), "a refused view that has no order of memory"
    calls = told(split)
    assert {name for name in refused if f" {name} " in f" {' '.join(calls)} "} == set(refused)
    assert not [call for call in calls if call.startswith("[") and set(call.strip("[]").split()) & set(refused)]


def test_thousands_of_nodes_are_cut_at_once() -> None:
    graph, refused = random_graph(0, size=2000)
    assert len(told(split_graph(graph, refused))) > 50


@pytest.mark.parametrize("seed", range(20))
def test_parts_of_a_cut_graph_run_one_after_the_other(seed: int) -> None:
    graph, refused = random_graph(seed, size=30)
    calls = [node for node in graph.graph.nodes if node.op == "call_function"]
    numbers = {node: 4 * i // len(calls) for i, node in enumerate(calls)}
    numbers |= {node: numbers[node.args[0]] for node in calls if node.target is operator.getitem}
    split = split_graph(graph, refused, numbers)
    split.graph.lint()
    inputs = [torch.randn(3, 3).clamp(-1, 1) for _ in range(3)]
    results, _ = run(split, *inputs)
    for got, expected in zip(results, graph(*inputs), strict=True):
        assert torch.equal(got, expected)
    by_name = {node.name: number for node, number in numbers.items() if not is_light(node)}
    parts = [{by_name[name] for name in call.strip("[]").split() if name in by_name} for call in told(split)]
    assert all(len(part) <= 1 for part in parts), "no piece is of two parts"
    in_order = [part.pop() for part in parts if part]
    assert in_order == sorted(in_order)
    assert len(set(in_order)) == 4


def test_what_torch_reads_expanded_of_an_input_is_expanded_there() -> None:
    """Where ONNX reads it, too, it is expanded there once more; what ONNX computes is handed as it is."""

    def function(x: Tensor, index: Tensor) -> Tensor:
        places = index[1].view(-1, 1).expand(-1, 3)
        sums = torch.zeros(4, 3).scatter_add(0, places, x.exp() + places)
        more = sums.scatter_add(0, (index[0] * 1).view(-1, 1).expand(-1, 3), x)
        return more.exp().gather(0, places)

    inputs = torch.rand(2, 3), torch.tensor([[0, 1], [2, 2]])
    graph = make_fx(function, tracing_mode="fake")(*inputs)
    split = split_graph(graph, {"scatter_add": "slow", "scatter_add_1": "slow"})
    assert torch.equal(fx.Interpreter(split).run(*inputs), function(*inputs))
    assert {"expand", "expand_1"} & set(told(split)) == {"expand"}
    first = pieces_of(split)["piece_0"]
    assert [node.name for node in first.graph.nodes if node.op == "placeholder"] == ["x_1", "index_1"]
    assert len(pieces_of(split)) == 2
