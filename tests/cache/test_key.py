"""Keys: another one for whatever the lowering would see, the same for what it would not."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

import dort_compare.cache.key as keys
from dort_compare.cache.key import key_of
from dort_compare.cache.words import LARGEST_CONSTANTS, UnkeyedError, sizes_of
from dort_compare.signature import Signature

aten = torch.ops.aten
X = torch.ones(4, 6)


def traced(function, *args, mode="fake"):
    return make_fx(function, tracing_mode=mode)(*args)


def of(graph_module, phase="inference", chosen=()):
    return key_of(graph_module, Signature.of(graph_module), phase, chosen)


def doubled_or_less(x):
    return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))


def tripled_or_less(x):
    return torch.cond(x.sum() > 0, lambda x: x * 3, lambda x: x - 1, (x,))


VARIANTS = {
    "plain": (lambda x: x * 2, X),
    "another op": (lambda x: x + 2, X),
    "another overload": (lambda x: x * torch.full_like(x, 2), X),
    "another constant": (lambda x: x * 3, X),
    "a float": (lambda x: x * 2.0, X),
    "a bool": (lambda x: x * True, X),
    "minus zero": (lambda x: x * -0.0, X),
    "zero": (lambda x: x * 0.0, X),
    "nan": (lambda x: x * float("nan"), X),
    "twice": (lambda x: x * 2 * 2, X),
    "the input too": (lambda x: (x * 2, x), X),
    "two outputs": (lambda x: (x * 2, x + 1), X),
    "in the other order": (lambda x: (x + 1, x * 2), X),
    "another dtype": (lambda x: x * 2, X.double()),
    "half": (lambda x: x * 2, X.half()),
    "another shape": (lambda x: x * 2, torch.ones(6, 4)),
    "other strides": (lambda x: x * 2, torch.ones(6, 4).t()),
    "axis 0": (lambda x: x.softmax(0), X),
    "axis 1": (lambda x: x.softmax(1), X),
    "axis -1": (lambda x: x.softmax(-1), X),
    "a cast": (lambda x: x.to(torch.float16), X),
    "another cast": (lambda x: x.to(torch.bfloat16), X),
    "a memory format": (lambda x: x[None, None].clone(memory_format=torch.channels_last), X),
    "another one": (lambda x: x[None, None].clone(memory_format=torch.contiguous_format), X),
    "operands": (lambda x, y: x - y, X, X.clone()),
    "swapped": (lambda x, y: y - x, X, X.clone()),
    "tensor constant": (lambda x: x[:, :2] * torch.tensor([1.0, 2.0]), X),
    "other elements": (lambda x: x[:, :2] * torch.tensor([1.0, 3.0]), X),
    "other constant dtype": (lambda x: x[:, :2] * torch.tensor([1.0, 2.0], dtype=torch.float64), X),
    "a list": (lambda x: x.sum([0, 1]), X),
    "a shorter list": (lambda x: x.sum([0]), X),
    "keyword": (lambda x: x.sum([0], keepdim=True), X),
    "branches": (doubled_or_less, X),
    "other branches": (tripled_or_less, X),
    "random": (torch.rand_like, X),
    "dropout": (lambda x: torch.dropout(x, 0.5, True), X),
    "more dropout": (lambda x: torch.dropout(x, 0.6, True), X),
    "complex": (lambda x: torch.view_as_complex(x.reshape(-1, 2)), X),
}


@pytest.fixture(scope="module")
def graphs():
    return {name: traced(function, *args) for name, (function, *args) in VARIANTS.items()}


def test_graphs_that_differ_in_one_thing_have_different_keys(graphs):
    found = {name: of(graph_module) for name, graph_module in graphs.items()}
    same = [(a, b) for a, b in itertools.combinations(found, 2) if found[a] == found[b]]
    assert not same


@pytest.mark.parametrize("name", VARIANTS)
def test_a_graph_traced_again_has_the_same_key(graphs, name):
    function, *args = VARIANTS[name]
    assert of(traced(function, *args)) == of(graphs[name])


def test_sizes_symbolic_static_and_of_another_range(graphs):
    def bounded(x):
        torch._check(x.shape[0] < 100)
        return x * 2

    static, dynamic = graphs["plain"], traced(lambda x: x * 2, X, mode="symbolic")
    other = traced(lambda x: x * 2, torch.ones(7, 5), mode="symbolic")
    square = traced(lambda x: x * 2, torch.ones(5, 5), mode="symbolic")
    found = [of(graph) for graph in (static, dynamic, square, traced(bounded, X, mode="symbolic"))]
    assert len(set(found)) == 4
    assert of(other) == of(dynamic)


def test_a_guard_that_is_added_shows(graphs):
    graph_module = traced(lambda x: x * 2, X, mode="symbolic")
    (x,) = (node for node in graph_module.graph.nodes if node.op == "placeholder")
    before = sizes_of(graph_module)
    assert before == sizes_of(graph_module)
    assert x.meta["val"].shape[0] > 3
    assert sizes_of(graph_module) != before


def test_phase_options_and_default_dtype(graphs):
    graph_module = graphs["plain"]
    found = {of(graph_module), of(graph_module, "forward"), of(graph_module, "backward"), of(graph_module, chosen=(1,))}
    torch.set_default_dtype(torch.float64)
    try:
        found.add(of(graph_module))
    finally:
        torch.set_default_dtype(torch.float32)
    assert len(found) == 5


@pytest.mark.parametrize("change", ["name", "stack_trace", "nn_module_stack"])
def test_what_a_model_says_of_its_origin(graphs, change):
    graph_module = copy.deepcopy(graphs["plain"])
    node = next(node for node in graph_module.graph.nodes if node.op == "call_function")
    if change == "name":
        node._rename("other")
    elif change == "stack_trace":
        node.meta["stack_trace"] = 'File "/some/model.py", line 7, in forward'
    else:
        node.meta["nn_module_stack"] = {"0": ("L['self'].layers[0]", torch.nn.Linear)}
    assert of(graph_module) != of(graphs["plain"])


@pytest.mark.parametrize("package", ["torch", "onnx", "onnx_ir", "onnxscript", "onnxruntime"])
def test_versions(graphs, package, monkeypatch):
    before = of(graphs["plain"])
    keys.software.cache_clear()
    monkeypatch.setattr(f"{package}.__version__", "0.1")
    try:
        assert of(graphs["plain"]) != before
    finally:
        keys.software.cache_clear()


def test_our_own_source(graphs, monkeypatch, tmp_path):
    before = of(graphs["plain"])
    keys.software.cache_clear()
    (tmp_path / "cache").mkdir()
    (tmp_path / "lowering.py").write_text("")
    monkeypatch.setattr(keys, "__file__", str(tmp_path / "cache/key.py"))
    try:
        assert of(graphs["plain"]) != before
    finally:
        keys.software.cache_clear()


# What has no key.


class Opaque:
    """An argument that Python can write down, but that means something to its own process only."""

    def __repr__(self):
        return "None"


def unknown_argument(graph):
    return graph.call_function(aten.mul.Tensor, (graph.placeholder("x"), Opaque()))


def a_function_of_the_callers(graph):
    return graph.call_function(lambda x: x, (graph.placeholder("x"),))


def an_object(graph):
    graph.owning_module.held = object()
    return graph.get_attr("held")


def a_large_constant(graph):
    graph.owning_module.held = torch.empty(LARGEST_CONSTANTS + 1, dtype=torch.int8)
    return graph.get_attr("held")


def a_sparse_constant(graph):
    graph.owning_module.held = torch.eye(2).to_sparse()
    return graph.get_attr("held")


REASONS = {
    unknown_argument: "mul.*an argument of type Opaque",
    a_function_of_the_callers: "a function of unknown source",
    an_object: "a constant of type object",
    a_large_constant: "a constant of 64 MiB",
    a_sparse_constant: "a torch.sparse_coo constant",
}


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")
@pytest.mark.parametrize("build", REASONS)
def test_what_has_no_key(build):
    module = fx.GraphModule(torch.nn.Module(), fx.Graph())
    graph = fx.Graph(owning_module=module)
    graph.output((build(graph),))
    module.graph = graph
    for node in module.graph.nodes:
        if node.op == "placeholder":
            node.meta["val"] = X
    with pytest.raises(UnkeyedError, match=REASONS[build]):
        key_of(module, Signature((), ()), "inference", ())
