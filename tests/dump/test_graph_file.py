"""A graph that comes back from its JSON is the graph that went in: values, provenance, signature."""

from __future__ import annotations

import json
import math
import operator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, fx, nn

from dort_compare import DebugBackend
from dort_compare.backends import CompiledGraph
from dort_compare.dump import DumpWriter, graphs_in
from dort_compare.dump.arguments import decoded, encoded
from dort_compare.dump.graph_file import graph_text, read_graph
from dort_compare.errors import DumpError
from dort_compare.lowering import registered
from dort_compare.lowering.targets import find_target
from dort_compare.models import LlamaConfig, build
from dort_compare.provenance import Provenance, target_name
from dort_compare.scalars import unbacked_symbols
from dort_compare.signature import Signature
from dort_compare.trace.lockstep import lockstep

SMALL = LlamaConfig(hidden=32, heads=2, kv_heads=1, intermediate=48, vocabulary=20, layers=1)


def here(device: torch.device) -> torch.device:
    return device


class Table(nn.Module):
    """Constants of its own, numbers that are not finite, integers, booleans, values that are not contiguous."""

    def forward(self, x: Tensor) -> Tensor:
        table = torch.tensor([[1.5, -2.0], [math.inf, 0.25]])
        y = torch.where(x.t() > 0.5, -math.inf, x.t()[:, ::2].repeat(1, 2))
        kept = torch.where(y.isfinite(), y, 0.0)
        return (kept.softmax(-1) @ table[1:, 1:].expand(4, 4)).half().float().masked_fill(kept.long() == 1, 1e-30)


def by_mask(x: Tensor, mask: Tensor) -> Tensor:
    chosen = x[mask]
    return (chosen.exp() * chosen.shape[0]).sum() + mask.sum().item()


def llama(part: str, **options: Any) -> Any:
    return lambda: (*build(part, SMALL, seq=6, mask=part == "model"), options)


CASES: dict[str, Any] = {
    "attention": llama("attention"),
    "decoder": llama("decoder"),
    "model": llama("model"),
    "model by torch's exporter": llama("model", exporter="torch"),
    "dynamic": lambda: (nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.GELU()), (torch.randn(5, 3),), {}),
    "constants": lambda: (Table(), (torch.randn(4, 4),), {}),
    "data-dependent": lambda: (by_mask, (torch.randn(5, 3), torch.tensor([1, 0, 1, 1, 0]).bool()), {}),
    "in pieces": lambda: (
        nn.Sequential(nn.Linear(3, 4), nn.Dropout(), nn.Linear(4, 2)),
        (torch.randn(5, 3),),
        {"fallback": True},
    ),
}


LONG = ("attention", "model", "model by torch's exporter")


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in CASES])
def dumped(request: Any, tmp_path: Path) -> tuple[list[CompiledGraph], Path]:
    """The graphs of a case, and the dump of them."""
    module, args, options = CASES[request.param]()
    backend = DebugBackend(**{"fallback": False, "dump": tmp_path / "dump", **options})
    captured = torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True)
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=request.param == "decoder")
    with captured, autocast:
        result = torch.compile(module, backend=backend, dynamic=request.param == "dynamic")(*args)
    if result.requires_grad:
        result.sum().backward()
    return backend.graphs, tmp_path / "dump"


def bits(value: Tensor) -> Tensor:
    return value.contiguous().reshape(-1).view(torch.uint8)


def same(first: Any, second: Any) -> bool:
    """Equal in every bit, dtype and stride."""
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        layout = (first.dtype, first.shape, first.stride(), first.device)
        if layout != (second.dtype, second.shape, second.stride(), second.device):
            return False
        return torch.equal(bits(first), bits(second))
    return type(first) is type(second) and first == second


def kinds(node: fx.Node) -> set[str]:
    """What a case may be there to show."""
    origin = Provenance.of(node, "forward")
    found = {
        node.op,
        "provenance" if origin.source and origin.module else "",
        "unbacked" if unbacked_symbols(node) else "",
    }
    return found | {"number"} if isinstance(node.meta.get("val"), int) else found


SHOWS = {
    "decoder": {"provenance"},
    "constants": {"get_attr"},
    "dynamic": {"number"},
    "data-dependent": {"unbacked"},
}


def test_values_and_provenance_come_back(dumped: tuple[list[CompiledGraph], Path], request: Any) -> None:
    graphs, folder = dumped
    assert graphs
    compared, seen = 0, set[str]()
    for graph, entry in zip(graphs, graphs_in(folder), strict=True):
        read = entry.graph_module(find_target, "cpu")
        inputs = entry.inputs(read)
        given = graph.named_inputs()
        assert list(inputs) == list(given)
        assert all(same(inputs[name], given[name]) for name in given)
        steps = zip(
            lockstep(graph.graph_module, list(given.values())), lockstep(read, list(inputs.values())), strict=True
        )
        for ours, theirs in steps:
            assert same(ours.value, theirs.value), ours.node
            assert same(ours.exact, theirs.exact), ours.node
            assert ours.operands.keys() == theirs.operands.keys()
            compared += 1
        for ours, theirs in zip(graph.graph_module.graph.nodes, read.graph.nodes, strict=True):
            assert (ours.op, ours.name) == (theirs.op, theirs.name)
            assert Provenance.of(ours, "forward") == Provenance.of(theirs, "forward")
            assert ours.meta.get("seq_nr") == theirs.meta.get("seq_nr")
            assert unbacked_symbols(ours) == unbacked_symbols(theirs)
            seen |= kinds(theirs)
        assert [i.name for i in Signature.of(read).inputs] == [i.name for i in graph.signature.inputs]
        for ours, theirs in zip(graph.signature.outputs, Signature.of(read).outputs, strict=True):
            assert (ours.name, ours.constant, ours.dtype, ours.device) == (
                theirs.name, theirs.constant, theirs.dtype, theirs.device,
            )  # fmt: skip
        assert graph.signature.checks == Signature.of(read).checks
    assert compared
    assert seen >= SHOWS.get(request.node.callspec.params["dumped"], set())


# Arguments.

NUMBERS = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text())
TYPES = st.sampled_from([torch.float32, torch.bool, torch.strided, torch.channels_last, torch.device("cpu")])
ARGUMENTS = st.recursive(NUMBERS | TYPES, lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner))


def equal(first: Any, second: Any) -> bool:
    if isinstance(first, (list, tuple)):
        return type(first) is type(second) and len(first) == len(second) and all(map(equal, first, second))
    if isinstance(first, float):
        return type(second) is float and (first == second or (math.isnan(first) and math.isnan(second)))
    return type(first) is type(second) and first == second


@given(ARGUMENTS)
@settings(max_examples=60)
def test_arguments_come_back(argument: Any) -> None:
    text = json.dumps(encoded(argument), allow_nan=False)
    assert equal(decoded(json.loads(text), {}, here), argument)


def test_slices_and_nodes_come_back() -> None:
    node = fx.Graph().placeholder("x")
    argument = [slice(None, node, 2), (node, -0.0)]
    read = decoded(json.loads(json.dumps(encoded(argument))), {"x": node}, here)
    assert read == argument
    assert math.copysign(1, read[1][1]) == -1


# What may be called.


def test_every_target_of_ours_is_found_by_its_name() -> None:
    graph = fx.Graph()
    for target in registered():
        assert find_target(target_name(graph.call_function(target))) is target


@pytest.mark.parametrize(
    "name",
    [
        "aten.from_file.default", "aten.add_.Tensor", "aten.add", "aten.set_.source_Storage", "prims.rng_prims",
        "builtins.eval", "os.system", "operator.setitem", "operator.attrgetter", "torch.load", "torch.ops.load_library",
        "aten.__class__.default", "aten.add.__call__", "debugprims.load_tensor.default", "inductor.x.default", "",
        "aten._native_batch_norm_legit.default", "aten.atan2.out", "aten.add.Tensor ", "aten.add.Tensor\n",
    ],
)  # fmt: skip
def test_nothing_else_is_found(name: str) -> None:
    assert find_target(name) is None


def test_what_torch_calls_core_is_found() -> None:
    assert find_target("aten.var.dim") is torch.ops.aten.var.dim


# What cannot be written.


def test_a_module_is_there_as_text_with_the_reason(tmp_path: Path) -> None:
    graph = fx.Graph()
    graph.output(graph.get_attr("inner"))
    module = fx.GraphModule({"inner": nn.Identity()}, graph)
    with pytest.raises(DumpError, match="there as text only: FX node inner is a nested Identity"):
        written(tmp_path, module).graph_module(find_target, "cpu")


def written(folder: Path, module: fx.GraphModule) -> Any:
    import onnx_ir as ir

    empty = ir.Model(ir.Graph([], [], nodes=[], name="empty"), ir_version=10)
    DumpWriter.in_folder(folder).add_graph(empty, module, "inference")
    (entry,) = graphs_in(folder)
    return entry


def test_an_argument_of_no_known_kind_is_there_as_text(tmp_path: Path) -> None:
    graph = fx.Graph()
    graph.output(graph.call_function(operator.add, (graph.placeholder("x"), 1j)))
    with pytest.raises(DumpError, match="an argument is a complex, which a dump cannot hold"):
        written(tmp_path, fx.GraphModule({}, graph)).graph_module(find_target, "cpu")


def test_names_of_python_stay_what_they_are() -> None:
    graph = fx.Graph()
    node = graph.placeholder("x")
    node.name = "sum"
    graph.output(node)
    text, _ = graph_text(fx.GraphModule({}, graph))
    assert [node.name for node in read_graph(text, {}, find_target, here).graph.nodes] == ["sum", "output"]
