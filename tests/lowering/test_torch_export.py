"""PyTorch's own exporter as a second lowering: values, names, provenance and refusals, on graphs AOTAutograd made."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch import Tensor, fx, nn
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses.fake_tensor import FakeTensorMode

from dort_compare import compare
from dort_compare.errors import ExportError
from dort_compare.lowering.lowered import Lowered
from dort_compare.lowering.torch_export import export_with_torch
from dort_compare.provenance import FX_NODE, Phase, Provenance

FLOAT16_TOLERANCE = 1e-2
FLOAT32_TOLERANCE = 1e-5


@dataclass
class Graph:
    """A graph of AOTAutograd with the inputs and outputs of one run."""

    module: fx.GraphModule
    phase: Phase
    inputs: list[Any]
    outputs: list[Any]

    @property
    def calls(self) -> list[fx.Node]:
        return [node for node in self.module.graph.nodes if node.op == "call_function"]


def capture(
    model: nn.Module,
    *args: Tensor,
    autocast: torch.dtype | None = None,
    dynamic: bool = False,
    on_compile: Callable[[fx.GraphModule, Phase], None] = lambda module, phase: None,
) -> dict[Phase, Graph]:
    """The graphs of one training step of ``model``, whose loss is a random weighting of its output."""
    graphs: dict[Phase, Graph] = {}

    def compiler(phase: Phase) -> Callable[..., Any]:
        def compile_graph(module: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
            on_compile(module, phase)

            def run(*inputs: Any) -> Any:
                kept = [value.detach().clone() if isinstance(value, Tensor) else value for value in inputs]
                outputs = module(*inputs)
                graphs[phase] = Graph(module, phase, kept, list(outputs))
                return outputs

            return make_boxed_func(run)

        return compile_graph

    torch._dynamo.reset()
    backend = aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        partition_fn=min_cut_rematerialization_partition,
    )
    cast = torch.autocast("cpu", dtype=autocast) if autocast else contextlib.nullcontext()
    with cast:
        output = torch.compile(model, backend=backend, dynamic=dynamic)(*args)
    if output.requires_grad:
        output.backward(torch.randn_like(output))
    return graphs


def run(lowered: Lowered, inputs: list[Any]) -> dict[str, Tensor]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    model = ir.to_proto(lowered.model).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [graph_input.name for graph_input in lowered.signature.inputs]
    feeds = {name: torch.as_tensor(value).numpy() for name, value in zip(names, inputs, strict=True)}
    results = session.run(list(lowered.signature.computed), feeds)
    return {name: torch.from_numpy(value) for name, value in zip(lowered.signature.computed, results, strict=True)}


def distance(actual: Tensor, expected: Tensor) -> float:
    """The largest difference over the largest finite element of ``expected``; equal infinities differ by 0."""
    actual, expected = actual.double().flatten(), expected.double().flatten()
    difference = torch.where(actual == expected, 0, (actual - expected).abs())
    largest = expected[expected.isfinite()].abs().amax().item() if expected.isfinite().any() else 0.0
    return difference.amax().item() / (largest or 1.0) if difference.numel() else 0.0


def check_legal(lowered: Lowered, graph: Graph) -> None:
    """What must hold of every export: a legal model, inputs and outputs by name, provenance, no racy scatter."""
    proto = ir.to_proto(lowered.model)
    onnx.checker.check_model(proto, full_check=True)
    placeholders = [node.name for node in graph.module.graph.nodes if node.op == "placeholder"]
    assert [value.name for value in proto.graph.input] == placeholders
    assert [value.name for value in proto.graph.output] == list(lowered.signature.computed)
    for value in lowered.model.graph.outputs:
        assert value.metadata_props[FX_NODE] == value.name
    values = [value for node in lowered.model.graph.all_nodes() for value in node.outputs]
    assert all(value.dtype is not None and value.shape is not None for value in values)
    calls = {node.name: node for node in graph.calls if not isinstance(node.meta["val"], (tuple, list))}
    found = {str(value.name): value for value in values if FX_NODE in value.metadata_props}
    assert len(calls.keys() & found.keys()) >= 0.9 * len(calls)
    for name, value in found.items():
        assert Provenance.read(value.metadata_props) == Provenance.of(calls[name], graph.phase)
    nodes = list(lowered.model.graph.all_nodes())
    assert all(FX_NODE in node.metadata_props for node in nodes)
    scatters = [node for node in nodes if node.op_type == "ScatterND"]
    assert all(node.attributes.get_string("reduction", "none") == "none" for node in scatters)


def check_values(lowered: Lowered, graph: Graph, tolerance: float) -> None:
    results = run(lowered, graph.inputs)
    for output, expected in zip(lowered.signature.outputs, graph.outputs, strict=True):
        if output.name in results:
            wanted, actual = torch.as_tensor(expected), results[output.name]
            assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape), output.name
            assert distance(actual, wanted) <= tolerance, output.name


def check(graphs: dict[Phase, Graph], phases: set[Phase], tolerance: float = FLOAT32_TOLERANCE) -> None:
    assert graphs.keys() == phases
    for graph in graphs.values():
        lowered = export_with_torch(graph.module, graph.phase, 18)
        check_legal(lowered, graph)
        check_values(lowered, graph, tolerance)


TRAINING: set[Phase] = {"forward", "backward"}


class Parametrized(nn.Module):
    """A function of an input and of parameters of the given shapes."""

    def __init__(self, function: Callable[..., Tensor], *shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.function = function
        self.weights = nn.ParameterList(torch.randn(shape) for shape in shapes)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.weights)


class EmbeddingNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 16, padding_idx=2)
        self.norm = nn.LayerNorm(16)

    def forward(self, ids: Tensor) -> Tensor:
        return self.norm(self.embedding(ids))


class Llama(nn.Module):
    def __init__(self, attention: str) -> None:
        super().__init__()
        transformers = pytest.importorskip("transformers")
        config = transformers.LlamaConfig(
            hidden_size=64,
            intermediate_size=128,
            num_attention_heads=4,
            num_key_value_heads=2,
            num_hidden_layers=1,
            vocab_size=100,
            use_cache=False,
            attn_implementation=attention,
        )
        self.model = transformers.LlamaModel(config)

    def forward(self, ids: Tensor) -> Tensor:
        return self.model(ids).last_hidden_state


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 8))


def attention(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, **options)


INDEX = torch.tensor([0, 0, 1, 2, 2, 2])
EMPTY_ROW = torch.ones(6, 6, dtype=torch.bool).tril(-1)

CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "linear": (lambda: nn.Linear(8, 4), lambda: torch.randn(3, 8)),
    "mlp": (mlp, lambda: torch.randn(3, 8)),
    "embedding and norm": (EmbeddingNorm, lambda: torch.tensor([[1, 1, 2, 1, 6, 1]])),
    "no rows": (EmbeddingNorm, lambda: torch.zeros(0, 3, dtype=torch.int64)),
    "cross entropy": (lambda: Parametrized(lambda y, x: F.cross_entropy(x, y), (6, 3)), lambda: INDEX),
    "repeated indices": (lambda: Parametrized(lambda x, w: w[:, INDEX] * x, (3, 3)), lambda: torch.randn(3, 6)),
    "split": (
        lambda: Parametrized(lambda x, w: operator.mul(*(x @ w).chunk(2, -1)), (3, 6)),
        lambda: torch.randn(4, 3),
    ),
    "same value twice": (
        lambda: Parametrized(lambda x, w: (w.view(9).view(3, 3) * x).expand(3, 3), (3, 3)),
        lambda: torch.randn(3, 3),
    ),
    "constant": (lambda: Parametrized(lambda x, w: x * w + torch.tensor([1.0, 2.0]), (2,)), lambda: torch.randn(3, 2)),
    "inlined function": (lambda: Parametrized(lambda x, w: F.mish(x * w), (4,)), lambda: torch.randn(3, 4)),
    "causal grouped attention": (
        lambda: Parametrized(lambda q, k, v: attention(q, k, v, is_causal=True, enable_gqa=True), *2 * [(2, 2, 6, 8)]),
        lambda: torch.randn(2, 4, 6, 8, requires_grad=True),
    ),
    "masked row": (
        lambda: Parametrized(lambda q, k, v: attention(q, k, v, attn_mask=EMPTY_ROW), *2 * [(2, 2, 6, 8)]),
        lambda: torch.randn(2, 2, 6, 8, requires_grad=True),
    ),
}


SLOW = {"split", "same value twice", "constant", "inlined function", "repeated indices"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in CASES])
def test_small_models_train_alike(name: str) -> None:
    model, example = CASES[name]
    check(capture(model(), example()), TRAINING)


def test_symbolic_sizes_stay_symbolic() -> None:
    model = Parametrized(lambda ids, w: F.silu(F.embedding(ids, w)).reshape(ids.shape[0] * ids.shape[1], 4), (10, 4))
    graphs = capture(model, torch.randint(0, 10, (3, 5)), dynamic=True)
    assert any(isinstance(value, int) for value in graphs["forward"].inputs)
    check(graphs, TRAINING)


@pytest.mark.parametrize("implementation", ["eager", pytest.param("sdpa", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "dtype",
    [torch.float32, *(pytest.param(dtype, marks=pytest.mark.slow) for dtype in (torch.float16, torch.bfloat16))],
    ids=str,
)
def test_llama_trains_alike(implementation: str, dtype: torch.dtype) -> None:
    autocast = None if dtype == torch.float32 else dtype
    graphs = capture(Llama(implementation), torch.randint(0, 100, (2, 16)), autocast=autocast)
    assert graphs.keys() == TRAINING
    for graph in graphs.values():
        lowered = export_with_torch(graph.module, graph.phase, 18)
        check_legal(lowered, graph)
        if dtype != torch.bfloat16:
            check_values(lowered, graph, FLOAT32_TOLERANCE if dtype == torch.float32 else FLOAT16_TOLERANCE)


@pytest.mark.parametrize("opset", [20, *(pytest.param(opset, marks=pytest.mark.slow) for opset in (23, 25))])
def test_other_opsets_keep_the_provenance(opset: int) -> None:
    for graph in capture(mlp(), torch.randn(3, 8)).values():
        lowered = export_with_torch(graph.module, graph.phase, opset)
        assert lowered.model.opset_imports[""] == opset
        check_legal(lowered, graph)


def test_exports_inside_a_compilation_under_autocast() -> None:
    lowered: dict[Phase, Lowered] = {}

    def export(module: fx.GraphModule, phase: Phase) -> None:
        lowered[phase] = export_with_torch(module, phase, 18)

    graphs = capture(mlp(), torch.randn(3, 8), autocast=torch.float16, on_compile=export)
    assert lowered.keys() == TRAINING
    for phase, graph in graphs.items():
        check_legal(lowered[phase], graph)
        check_values(lowered[phase], graph, FLOAT16_TOLERANCE)


def test_says_nothing_and_writes_nothing(
    capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = capture(mlp(), torch.randn(3, 8))["forward"]
    monkeypatch.chdir(tmp_path)
    capfd.readouterr()
    recwarn.clear()
    export_with_torch(graph.module, "forward", 18)
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list
    assert not list(tmp_path.iterdir())


def test_leaves_the_graph_as_it_was() -> None:
    graph = capture(mlp(), torch.randn(3, 8))["backward"].module
    for node in graph.graph.nodes:
        node.meta["custom"] = {"own": "annotation"}
    before, metas = str(graph.graph), [dict(node.meta) for node in graph.graph.nodes]
    check_legal(export_with_torch(graph, "backward", 18), Graph(graph, "backward", [], []))
    assert str(graph.graph) == before
    assert [node.meta for node in graph.graph.nodes] == metas
    assert all(node.meta["custom"] == {"own": "annotation"} for node in graph.graph.nodes)


def test_an_op_torch_cannot_convert_is_named() -> None:
    graph = capture(Parametrized(lambda x, w: torch.linalg.svdvals(x @ w), (3, 3)), torch.randn(3, 3))["forward"]
    with pytest.raises(ExportError) as error:
        export_with_torch(graph.module, "forward", 18)
    message = str(error.value)
    assert message.startswith("PyTorch's exporter cannot convert aten._linalg_svd.default (FX node _linalg_svd, ")
    assert "test_torch_export.py:" in message
    assert message.endswith('; lower it with exporter="native"')
    assert "\n" not in message


def test_cuda_attention_is_refused_for_its_logsumexp() -> None:
    graph = fx.Graph()
    operands = [graph.placeholder(name) for name in ("query", "key", "value")]
    with FakeTensorMode():
        for operand in operands:
            operand.meta["val"] = torch.empty(1, 2, 8, 8, dtype=torch.float16, device="cuda")
    call = graph.call_function(torch.ops.aten._scaled_dot_product_flash_attention.default, tuple(operands))
    output = graph.call_function(operator.getitem, (call, 0))
    output.meta["val"] = operands[0].meta["val"]
    graph.output((output,))
    with pytest.raises(
        ExportError, match=r"flash_attention.default \(FX node .*\): torchlib returns an empty logsumexp"
    ):
        export_with_torch(fx.GraphModule({}, graph), "inference", 18)


def test_a_sum_over_repeated_indices_that_would_race_is_refused() -> None:
    model = Parametrized(lambda ids, w: F.embedding(ids, w, scale_grad_by_freq=True), (3, 4))
    graph = capture(model, INDEX)["backward"]
    with pytest.raises(
        ExportError, match=r"aten\.embedding_dense_backward\.default becomes ScatterND with a reduction"
    ):
        export_with_torch(graph.module, "backward", 18)


@pytest.mark.parametrize("opset", [17, 26])
def test_opsets_torch_does_not_write_are_refused(opset: int) -> None:
    graph = capture(nn.Linear(2, 2), torch.randn(1, 2))["forward"]
    with pytest.raises(ExportError, match=f"writes opset 18 to 25, not {opset}; lower it with exporter"):
        export_with_torch(graph.module, "forward", opset)


def test_split_of_a_transposed_value_reads_the_right_elements() -> None:
    """torch's own decomposition is as_strided, which torchlib applies to the row-major order of its input."""

    def halves(x: torch.Tensor) -> torch.Tensor:
        first, second = x.transpose(0, 1).chunk(2, dim=-1)
        return torch.cat((*second.unbind(0), *first.split_with_sizes([1, 3], dim=0)[1].unbind(0)))

    graph = capture(Parametrized(lambda x, w: halves(x) * w.sum(), (2,)), torch.randn(6, 4))["forward"]
    check_values(export_with_torch(graph.module, "forward", 18), graph, 1e-6)


class Summed(nn.Module):
    """Ends in an operation that torch's exporter computes in float32 and casts back."""

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        return (x * weight).abs().log1p().square().sum()


@pytest.mark.parametrize("dtype", [torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.slow)])
def test_values_in_half_precision_have_their_own_dtype(dtype: torch.dtype) -> None:
    x, weight = (torch.rand(8, generator=torch.Generator().manual_seed(0)).to(dtype) for _ in range(2))
    report = compare(Summed(), (x.requires_grad_(), weight), backward=True, exporter="torch")
    assert report.verdict == "agree", str(report)
    loss = torch.compile(Summed(), backend="dort", options={"exporter": "torch"})(x, weight)
    loss.backward()
    assert (loss.dtype, x.grad is not None and x.grad.dtype) == (dtype, dtype)


class RelativeBias(nn.Module):
    """What a table holds for each pair of four positions, added to scores."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(9, 2))

    def forward(self, scores: Tensor) -> Tensor:
        places = torch.tensor([[4, 3, 1, 0], [5, 4, 2, 1], [7, 6, 4, 3], [8, 7, 5, 4]])
        return scores @ scores + self.table[places.view(-1)].view(4, 4, 2).permute(2, 0, 1)


@pytest.mark.parametrize("name", ["pooled", "in halves"])
def test_sizes_of_the_graph_that_the_exporter_has_chosen_for_guard_it(name: str) -> None:
    function, sizes = {
        "pooled": (lambda x: F.adaptive_avg_pool1d(x, 3), [(1, 4, 6), (1, 4, 9), (1, 4, 7)]),
        "in halves": (
            lambda x: torch.cat([h.sum(0, keepdim=True) for h in x.chunk(2)]),
            [(4, 6), (6, 6), (5, 3)],
        ),
    }[name]
    compiled = torch.compile(function, backend="dort", dynamic=True, options={"exporter": "torch"})
    for size in sizes:
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), function(x))


def test_sizes_that_the_exporter_makes_up_do_not_guard_the_graph() -> None:
    """Torch knows no source of them, and ended in an IndexError."""
    report = compare(RelativeBias(), (torch.randn(6, 2, 4, 4),), backward=True, exporter="torch")
    assert report.verdict == "agree", str(report)
