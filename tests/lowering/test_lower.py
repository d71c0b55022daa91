"""What a lowered graph promises beside its values: names, provenance, outputs of every kind, errors, determinism."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest
import torch
from op_calls import Call
from torch import Tensor, fx, nn
from torch.fx.experimental.proxy_tensor import make_fx

import dort_compare
from dort_compare.backends import CompiledGraph
from dort_compare.errors import MissingLoweringError, UnsupportedGraphError
from dort_compare.lowering import decompositions, lower, lowering, registered, registry
from dort_compare.lowering.registry import lowering_by_name
from dort_compare.provenance import FX_NODE, Provenance
from dort_compare.runtime import Program, SessionSettings, newest_opset

aten = torch.ops.aten
KEYS = {f"dort_compare.{key}" for key in ("fx_node", "aten_target", "phase", "module", "source")}


def graphs_of(model: Any, *args: Any, **options: Any) -> tuple[Any, list[CompiledGraph]]:
    """The result of a compiled model with the graphs that were compiled, backward too where there is a gradient."""
    torch._dynamo.reset()
    backend = dort_compare.DebugBackend(providers=["cpu"], fallback=False, **options)
    result = torch.compile(model, backend=backend)(*args)
    if isinstance(result, Tensor) and result.requires_grad:
        result.backward(torch.ones_like(result))
    return result, backend.graphs


def test_a_graph_is_lowered_where_nobody_has_imported_inductor():
    """It brings ``prims::fma`` along."""
    program = """if True:
        import sys, torch
        from torch.fx.experimental.proxy_tensor import make_fx
        from dort_compare.lowering import lower
        lower(make_fx(torch.sin)(torch.ones(2)), "inference", 18)
        assert "torch._inductor.inductor_prims" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", program], check=True)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.ModuleList([nn.Linear(4, 4)])
        self.act = nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner[0](x)
        return self.act(y) * 2 + 1  # the line that the tests look for


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    def forward(self, x: Tensor) -> Tensor:
        return self.block(x).softmax(-1)


HERE = Path(__file__).name
LINE = next(i for i, line in enumerate(Path(__file__).read_text().splitlines(), 1) if "the tests look for" in line)


def test_every_fx_node_has_a_value_with_its_name_dtype_and_shape() -> None:
    _, graphs = graphs_of(Model(), torch.randn(3, 4, requires_grad=True))
    assert [graph.phase for graph in graphs] == ["forward", "backward"]
    for graph in graphs:
        values = {value.name: value for value in all_values(graph.lowered.model)}
        for node in graph.graph_module.graph.nodes:
            meta = node.meta.get("val")
            if isinstance(meta, Tensor):
                value = values[node.name]
                assert value.dtype == ir.tensor_adapters.from_torch_dtype(meta.dtype)
                assert list(value.shape) == list(meta.shape)
                assert Provenance.read(value.metadata_props) == Provenance.of(node, graph.phase)
        names = [node.name for node in graph.lowered.model.graph]
        assert len(names) == len(set(names))
        for onnx_node in graph.lowered.model.graph:
            assert onnx_node.metadata_props.keys() >= KEYS
            assert onnx_node.metadata_props[FX_NODE] in values
        onnx.checker.check_model(graph.onnx_model, full_check=True)


def all_values(model: ir.Model) -> list[ir.Value]:
    initializers = list(model.graph.initializers.values())
    return [*model.graph.inputs, *initializers, *(value for node in model.graph for value in node.outputs)]


def test_modules_and_lines_are_those_of_the_user() -> None:
    _, graphs = graphs_of(Model(), torch.randn(3, 4, requires_grad=True))
    forward, backward = (
        [Provenance.read(node.metadata_props) for node in graph.lowered.model.graph] for graph in graphs
    )
    by_target = {origin.aten_target: origin for origin in forward}
    assert by_target["aten.addmm.default"].module == "block.inner.0"
    assert by_target["aten.silu.default"].module == "block.act"
    assert by_target["aten.mul.Tensor"].module == "block"
    assert re.search(rf"{HERE}:{LINE}$", by_target["aten.mul.Tensor"].source)
    by_target = {origin.aten_target: origin for origin in backward}
    assert by_target["aten.silu_backward.default"].module == "block.act"
    assert by_target["aten.mm.default"].module == "block.inner.0"
    assert re.search(rf"{HERE}:{LINE}$", by_target["aten.silu_backward.default"].source)


def traced(outputs: Any) -> fx.GraphModule:
    """A graph of one input ``x`` and ``y = x + 1``; ``outputs`` picks what it returns."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(aten.add.Tensor, (x, 1), name="y")
    x.meta["val"] = y.meta["val"] = torch.zeros(2)
    graph.output(outputs(x, y))
    return fx.GraphModule({}, graph)


@pytest.mark.parametrize(
    "outputs",
    [
        lambda x, y: (y, y),
        lambda x, y: (x, y, x),
        lambda x, y: (None, y, None, 3),
        lambda x, y: (x,),
        lambda x, y: (None, 2.5, True),
        lambda x, y: (),
    ],
)
def test_outputs_may_repeat_be_inputs_be_none_or_be_missing(outputs: Any) -> None:
    module = traced(outputs)
    lowered = lower(module, "inference", newest_opset())
    onnx.checker.check_model(ir.to_proto(lowered.model), full_check=True)
    x = torch.randn(2)
    results = Program(lowered.model, lowered.signature, SessionSettings(("cpu",)))(x)
    assert len(results) == len(outputs(x, x + 1))
    for actual, expected in zip(results, outputs(x, x + 1), strict=True):
        assert actual is expected if actual is x or not isinstance(actual, Tensor) else torch.equal(actual, expected)


@pytest.mark.parametrize("training", [False, True])
def test_constants_of_the_model_are_in_the_graph(training: bool) -> None:
    def model(x: Tensor) -> Tensor:
        return x * torch.tensor([1.0, 2.0, 3.0]) + torch.tensor(0.5)

    x = torch.randn(2, 3, requires_grad=training)
    result, _ = graphs_of(model, x)
    assert torch.equal(result, model(x))
    if training:
        assert torch.equal(x.grad, torch.tensor([1.0, 2.0, 3.0]).expand(2, 3))


def test_a_missing_lowering_names_op_node_and_line() -> None:
    def model(x: Tensor) -> Tensor:
        return torch.linalg.svdvals(x)  # no lowering

    line = model.__code__.co_firstlineno + 1
    with pytest.raises(Exception, match="no lowering for") as raised:
        graphs_of(model, torch.randn(3, 3))
    message = str(raised.value)
    assert (
        f"no lowering for aten._linalg_svd.default (FX node _linalg_svd, {__file__}:{line}); fallback=True leaves it"
        in message
    )


def test_a_missing_lowering_says_what_to_do() -> None:
    call = Call(aten.hash_tensor.default, (torch.rand(3),), {})
    with pytest.raises(MissingLoweringError) as raised:
        call.lowered(newest_opset())
    assert str(raised.value) == (
        "no lowering for aten.hash_tensor.default (FX node hash_tensor_default, source line unknown); "
        "fallback=True leaves it to eager torch, and CONTRIBUTING.md shows how to add one"
    )
    assert (raised.value.target, raised.value.fx_node, raised.value.source) == (
        "aten.hash_tensor.default",
        "hash_tensor_default",
        "",
    )


def test_a_packet_of_overloads_is_refused() -> None:
    with pytest.raises(
        TypeError, match=r"aten\.erfinv is a packet of overloads; name one, such as aten\.erfinv\.default"
    ):
        lowering(aten.erfinv)(lambda op, x: x)
    assert aten.erfinv not in registered()


def test_a_second_lowering_of_an_op_is_refused() -> None:
    with pytest.raises(ValueError, match=r"aten\.relu\.default has a lowering already: relu"):
        lowering(aten.relu.default)(lambda op, x: x)
    with pytest.raises(ValueError, match="prims::fma has a lowering already: "):
        lowering_by_name("prims::fma")(lambda op, x: x)


def test_a_lowering_by_name_does_not_take_the_place_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_TABLE", {aten.relu.default: registered()[aten.relu.default]})
    monkeypatch.setattr(registry, "_BY_NAME", {})
    monkeypatch.setattr(registry, "_AWAITED", set())
    lowering_by_name("aten::relu")(lambda op, x: x)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"aten\.relu\.default has a lowering already: relu"):
            registered()


def test_a_lowering_of_what_torch_lacks_waits_for_it() -> None:
    """aten.cholesky, say, which torch 2.14 has left out, or the operator of a library that is not imported."""
    lowering_by_name("aten::left_out")(lambda op, x: x)
    lowering_by_name("not_imported::anything", "not_imported::anything.else")(lambda op, x: x)
    assert not {str(target) for target in registered()} & {"aten.left_out.default", "not_imported.anything.default"}


def test_the_table_of_decompositions_spares_what_has_a_lowering() -> None:
    """All but the norms of half-precision operands."""
    table = decompositions()
    both = table.keys() & registered().keys()
    assert {str(op).split(".")[1].removesuffix("_backward") for op in both} <= {
        "native_layer_norm",
        "native_group_norm",
        "native_batch_norm",
        "batch_norm",
        "_native_batch_norm_legit",
        "_native_batch_norm_legit_functional",
        "_native_batch_norm_legit_no_training",
        "_batch_norm_with_update_functional",
        "_batch_norm_no_update",
    }
    x = torch.randn(2, 4)
    assert table[aten.native_layer_norm.default](x, [4], None, None, 1e-5) is NotImplemented
    assert len(table[aten.native_layer_norm.default](x.half(), [4], None, None, 1e-5)) == 3
    assert aten.pixel_shuffle.default in table


@pytest.mark.parametrize("op", [aten.bernoulli.p, aten.native_dropout.default, aten.rand_like.default])
def test_random_ops_are_not_decomposed(op: torch._ops.OpOverload) -> None:
    assert op not in decompositions()


def test_what_decomposes_into_a_write_is_not_decomposed() -> None:
    assert not {aten.constant_pad_nd.default, aten.diagonal_scatter.default} & decompositions().keys()


MODULES = {
    "LayerNorm": (nn.LayerNorm(8), (2, 3, 8)),
    "GELU": (nn.GELU(), (2, 8)),
    "GELU by tanh": (nn.GELU("tanh"), (2, 8)),
    "RMSNorm": (nn.RMSNorm(8), (2, 8)),
    "LogSoftmax": (nn.LogSoftmax(-1), (2, 8)),
    "LeakyReLU": (nn.LeakyReLU(), (2, 8)),
    "Hardswish": (nn.Hardswish(), (2, 8)),
    "Flatten": (nn.Sequential(nn.Linear(8, 4), nn.Flatten()), (2, 3, 8)),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_of_decomposed_ops_train(name: str) -> None:
    model, shape = MODULES[name]
    model.zero_grad()
    x = torch.randn(shape)
    x_eager, x_onnx = x.clone().requires_grad_(), x.clone().requires_grad_()
    expected = model(x_eager)
    expected.backward(torch.ones_like(expected))
    result, _ = graphs_of(model, x_onnx)
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(x_onnx.grad, x_eager.grad, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("by_frequency", [False, True])
def test_gradients_of_repeated_rows_are_the_same_every_time(by_frequency: bool) -> None:
    grad, indices = torch.randn(2000, 16), torch.randint(5, (2000,))
    call = Call(aten.embedding_dense_backward.default, (grad, indices, 7, -1, by_frequency), {})
    lowered = call.lowered(newest_opset())
    program = Program(lowered.model, lowered.signature, SessionSettings(("cpu",), {"intra_op_num_threads": 4}))
    (first,) = program(grad, indices)
    assert all(torch.equal(program(grad, indices)[0], first) for _ in range(50))


@pytest.mark.parametrize("picked", [(..., slice(1, None)), (..., slice(0, None, 3)), (..., 2)], ids=str)
def test_a_gradient_padded_between_transposes_survives_the_optimizers(picked: tuple[object, ...]) -> None:
    """ONNX Runtime's TransposeOptimizer moves a Transpose through Pad and overlooks the input ``axes`` (1.31)."""

    def function(x: Tensor) -> Tensor:
        y = (x * 2).transpose(1, 2)[picked]
        return 2 * (y.transpose(0, 1) if y.ndim == 3 else y.transpose(1, 2))

    backend = dort_compare.DebugBackend(providers=["cpu"])
    torch._dynamo.reset()
    x = torch.randn(2, 3, 4, 5, requires_grad=True)
    result = torch.compile(function, backend=backend)(x)
    direction = torch.randn_like(result)
    (gradient,) = torch.autograd.grad(result, x, direction)
    (expected,) = torch.autograd.grad(function(x), x, direction)
    assert torch.equal(gradient, expected)
    pads = [node for graph in backend.graphs for node in graph.onnx_model.graph.node if node.op_type == "Pad"]
    assert pads
    assert all(len(node.input) == 3 for node in pads)


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_is_expanded_to_nothing_survives_the_optimizers(dynamic: bool) -> None:
    """ExpandElimination takes a dimension of 1 that becomes one of 0 for one that stays (1.31)."""
    compiled = torch.compile(lambda x: (x * 2).expand(0, 0) + 1, backend="dort", dynamic=dynamic)
    assert compiled(torch.empty(0, 1)).shape == (0, 0)


@pytest.mark.parametrize(("weights", "right"), [(torch.float32, True), (torch.float16, True), (torch.float64, False)])
def test_sums_of_weights_in_another_dtype_than_torch_computes_are_refused(weights: torch.dtype, right: bool) -> None:
    """Torch 2.11 traces integers."""
    x, y = torch.tensor([0, 1, 1]), torch.ones(3, dtype=weights)
    traced = make_fx(lambda x, y: (torch.bincount(x, y, 4),))(x, y)
    (call,) = traced.graph.find_nodes(op="call_function", target=torch.ops.aten.bincount.default)
    known = torch.float32 if weights == torch.float32 else torch.float64
    for node, value in zip(traced.graph.find_nodes(op="placeholder"), (x, y), strict=True):
        node.meta["val"] = value
    call.meta["val"] = torch.ones(4, dtype=known if right else torch.int64)
    if right:
        lower(traced, "inference", 20)
    else:
        with pytest.raises(UnsupportedGraphError, match="torch traces as"):
            lower(traced, "inference", 20)
