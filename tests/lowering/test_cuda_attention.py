"""CUDA's fused attention, lowered from graphs that AOTAutograd makes and run on the CPU, against a float64 formula.

No CUDA kernel runs here: torch traces these ops on the CPU too, and only ONNX Runtime computes them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from functorch.compile import min_cut_rematerialization_partition
from torch import Tensor, fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import BackendCompilerFailed
from torch._subclasses.fake_tensor import FakeTensorMode

from dort_compare.errors import UnsupportedGraphError
from dort_compare.lowering import lower
from dort_compare.lowering.lowered import Lowered
from dort_compare.provenance import OPAQUE, Phase
from dort_compare.runtime import Program, SessionSettings, newest_opset

aten = torch.ops.aten
OPSETS = (18, newest_opset())
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
INF = math.inf

FLASH, EFFICIENT, CUDNN = "flash", "efficient", "cudnn"
FAMILIES = (FLASH, EFFICIENT, CUDNN)


@dataclass(frozen=True)
class Attention:
    """A call of one family on tensors of these sizes: heads of queries, of keys; lengths of both; widths of both."""

    family: str
    heads: tuple[int, int] = (4, 4)
    lengths: tuple[int, int] = (5, 7)
    widths: tuple[int, int] = (8, 8)
    is_causal: bool = False
    scale: float | None = None
    bias_shape: tuple[int, ...] | None = None
    hidden: tuple[int, ...] = ()  # rows of queries that see no key, by the bias
    dtype: torch.dtype = torch.float32
    options: dict[str, Any] = field(default_factory=dict)

    def inputs(self) -> list[Tensor]:
        torch.manual_seed(0)
        (heads, key_heads), (length, keys), (width, value_width) = self.heads, self.lengths, self.widths
        shapes = [(2, heads, length, width), (2, key_heads, keys, width), (2, key_heads, keys, value_width)]
        tensors = [torch.randn(shape) for shape in shapes]
        if self.bias_shape is not None:
            tensors.append(torch.randn(self.bias_shape))
            for row in self.hidden:
                tensors[-1][..., row, :] = -INF
        tensors = [tensor.to(self.dtype).requires_grad_() for tensor in tensors]
        if self.family == CUDNN and self.bias_shape is not None:
            tensors[-1].requires_grad_(False)  # its op has no derivative of the bias
        return tensors

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> tuple[Any, ...]:
        common = {"is_causal": self.is_causal, "scale": self.scale, **self.options}
        if self.family == FLASH:
            return aten._scaled_dot_product_flash_attention(query, key, value, **common)
        op = getattr(aten, f"_scaled_dot_product_{self.family}_attention")
        return op(query, key, value, bias, **{"compute_log_sumexp": True, **common})

    def formula(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Output, and logsumexp with -inf for a row that sees nothing."""
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
        scale = self.scale or query.shape[-1] ** -0.5
        scores = query @ key.mT * scale + (0 if bias is None else bias)
        if self.is_causal:
            length, keys = scores.shape[-2:]
            seen = torch.ones(length, keys, dtype=torch.bool).tril(keys - length if self.family == FLASH else 0)
            scores = scores.masked_fill(~seen, -INF)
        empty = (scores == -INF).all(-1, keepdim=True)
        logsumexp = scores.masked_fill(empty, 0).logsumexp(-1).masked_fill(empty.squeeze(-1), -INF)
        return scores.masked_fill(empty, 0).softmax(-1).masked_fill(empty, 0) @ value, logsumexp


@dataclass
class Graph:
    module: fx.GraphModule
    lowered: Lowered
    outputs: list[Any] = field(default_factory=list)


def compiled(function: Callable[..., Any], opset: int) -> tuple[Callable[..., Any], dict[Phase, Graph]]:
    """``function`` on ONNX Runtime; its graphs, once they ran, hold what they returned."""
    torch._dynamo.reset()
    graphs: dict[Phase, Graph] = {}

    def compiler(phase: Phase) -> Callable[..., Any]:
        def compile_graph(module: fx.GraphModule, _: list[Any]) -> Callable[..., Any]:
            lowered = lower(module, phase, opset)
            onnx.checker.check_model(ir.to_proto(lowered.model), full_check=True)
            program = Program(lowered.model, lowered.signature, SessionSettings(("cpu",)))
            graphs[phase] = Graph(module, lowered)

            def run(arguments: list[Any]) -> list[Any]:
                graphs[phase].outputs = program(*arguments)
                arguments.clear()
                return graphs[phase].outputs

            run._boxed_call = True
            return run

        return compile_graph

    backend = aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        partition_fn=min_cut_rematerialization_partition,
    )
    return torch.compile(function, backend=backend), graphs


def assert_as_traced(graph: Graph) -> None:
    """Every output has the dtype and shape that torch traced; a size that is symbolic may be any."""
    returned = graph.module.graph.output_node().args[0]
    for node, got in zip(returned, graph.outputs, strict=True):
        if not isinstance(node, fx.Node) or not isinstance(fake := node.meta["val"], Tensor):
            continue
        assert got.dtype == fake.dtype, node.name
        assert len(got.shape) == len(fake.shape), node.name
        assert all(a == b for a, b in zip(got.shape, fake.shape, strict=True) if isinstance(b, int)), node.name


def assert_close(got: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(got.double(), expected, rtol=tolerance, atol=tolerance, equal_nan=False)


def doubles(inputs: list[Tensor]) -> list[Tensor]:
    return [tensor.detach().double().requires_grad_() for tensor in inputs]


def mark_lengths_dynamic(inputs: list[Tensor]) -> None:
    for tensor in inputs[:3]:
        torch._dynamo.mark_dynamic(tensor, 2)


def check_training(attention: Attention, opset: int, dynamic: bool = False) -> None:
    """One step of forward and backward: results as traced, output and gradients as the formula's."""
    inputs, wide = attention.inputs(), doubles(attention.inputs())
    if dynamic:
        mark_lengths_dynamic(inputs)
    function, graphs = compiled(lambda *args: attention(*args)[0], opset)
    got, expected = function(*inputs), attention.formula(*wide)[0]
    weights = torch.linspace(-1, 1, expected.numel(), dtype=torch.float64).reshape(expected.shape)
    got.backward(weights.to(got.dtype))
    expected.backward(weights.to(got.dtype).double())
    assert set(graphs) == {"forward", "backward"}
    for graph in graphs.values():
        assert_as_traced(graph)
    assert_close(got, expected, attention.dtype)
    for tensor, reference in zip(inputs, wide, strict=True):
        if tensor.requires_grad:
            assert_close(tensor.grad, reference.grad, attention.dtype)


BIAS = (2, 4, 5, 7)
TRAINED = {
    **{family: Attention(family) for family in FAMILIES},
    **{f"{family} causal": Attention(family, lengths=(6, 6), is_causal=True) for family in FAMILIES},
    **{f"{family} causal, more keys": Attention(family, is_causal=True) for family in FAMILIES},
    **{f"{family} causal, fewer keys": Attention(family, lengths=(7, 4), is_causal=True) for family in FAMILIES},
    **{f"{family} scale": Attention(family, scale=0.7) for family in FAMILIES},
    **{f"{family} grouped": Attention(family, heads=(4, 2)) for family in (FLASH, CUDNN)},
    **{f"{family} half": Attention(family, dtype=torch.float16) for family in FAMILIES},
    **{f"{family} wide values": Attention(family, widths=(8, 12)) for family in (EFFICIENT, CUDNN)},
    **{f"{family} bias": Attention(family, bias_shape=BIAS) for family in (EFFICIENT, CUDNN)},
    **{f"{family} empty rows": Attention(family, bias_shape=BIAS, hidden=(1, 4)) for family in (EFFICIENT, CUDNN)},
    "flash bfloat16": Attention(FLASH, dtype=torch.bfloat16),
    "efficient half bias": Attention(EFFICIENT, bias_shape=BIAS, dtype=torch.float16),
    "efficient broadcast bias": Attention(EFFICIENT, bias_shape=(1, 4, 1, 7)),
    "efficient bias of two dimensions": Attention(EFFICIENT, bias_shape=(5, 7)),
    "efficient aligned": Attention(EFFICIENT, lengths=(32, 32)),
}


@pytest.mark.parametrize("attention", TRAINED.values(), ids=TRAINED)
def test_forward_and_backward_are_those_of_the_formula(attention):
    check_training(attention, 18)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_newest_opset_too(family):
    check_training(Attention(family, is_causal=True, dtype=torch.float16), OPSETS[-1])


@pytest.mark.parametrize("family", FAMILIES)
def test_symbolic_lengths(family):
    check_training(Attention(family, heads=(4, 4 if family == EFFICIENT else 2), is_causal=True), 18, dynamic=True)


def results(attention: Attention, opset: int = 18, dynamic: bool = False) -> tuple[list[Any], list[Any], Graph]:
    """All results of an inference graph, what torch traced for them on a CUDA device, and the graph."""
    inputs = [tensor.detach() for tensor in attention.inputs()]
    with FakeTensorMode():
        fakes = attention(*(torch.empty(t.shape, dtype=t.dtype, device="cuda") for t in inputs))
    if dynamic:
        mark_lengths_dynamic(inputs)
    function, graphs = compiled(lambda *args: tuple(r for r in attention(*args) if isinstance(r, Tensor)), opset)
    got = function(*inputs)
    assert_as_traced(graphs["inference"])
    return list(got), [fake for fake in fakes if isinstance(fake, Tensor)], graphs["inference"]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_result_has_the_dtype_and_shape_of_the_cuda_op(family, opset, dynamic):
    got, fakes, _ = results(Attention(family, dtype=torch.float16), opset, dynamic)
    assert [(r.dtype, tuple(r.shape)) for r in got] == [(f.dtype, tuple(f.shape)) for f in fakes]
    assert all(fake.device.type == "cuda" for fake in fakes)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_logsumexp_is_natural_and_shaped_as_the_kernel_does(family):
    attention = Attention(family)
    (_, got, *_), _, _ = results(attention)
    _, expected = attention.formula(*doubles(attention.inputs()))
    if family == EFFICIENT:
        assert got.shape == (2, 4, 32)
        assert (got[..., 5:] == INF).all()
        got = got[..., :5]
    assert_close(got.squeeze(-1) if family == CUDNN else got, expected, torch.float32)


@pytest.mark.parametrize(
    ("attention", "rows", "logsumexp"),
    [
        (Attention(FLASH, lengths=(7, 4), is_causal=True), slice(0, 3), INF),
        (Attention(EFFICIENT, bias_shape=BIAS, hidden=(1, 2)), slice(1, 3), -INF),
        (Attention(CUDNN, bias_shape=BIAS, hidden=(1, 2)), slice(1, 3), -INF),
    ],
    ids=FAMILIES,
)
def test_a_row_that_sees_no_key(attention, rows, logsumexp):
    (output, got, *_), _, _ = results(attention)
    assert (output[:, :, rows] == 0).all()
    assert (got[:, :, rows] == logsumexp).all()
    assert got.isfinite().any()


def test_no_logsumexp_unless_asked_for():
    got, fakes, _ = results(Attention(EFFICIENT, options={"compute_log_sumexp": False}))
    assert got[1].shape == fakes[1].shape == (2, 4, 0)


@pytest.mark.parametrize(("family", "opaque"), [(FLASH, 3), (EFFICIENT, 2), (CUDNN, 2)])
def test_what_only_the_kernel_needs_is_marked_as_opaque(family, opaque):
    got, _, graph = results(Attention(family))
    marked = [OPAQUE in value.metadata_props for value in graph.lowered.model.graph.outputs]
    assert marked == [False, False] + [True] * opaque
    assert all((result == 0).all() for result in got[2:])
    assert "random number generator" in graph.lowered.model.graph.outputs[2].metadata_props[OPAQUE]


def test_the_mark_is_in_the_file():
    _, _, graph = results(Attention(EFFICIENT))
    outputs = ir.to_proto(graph.lowered.model).graph.output
    assert [any(p.key == OPAQUE for p in output.metadata_props) for output in outputs] == [False, False, True, True]


@pytest.mark.parametrize("family", FAMILIES)
def test_only_what_the_graph_reads_is_computed(family):
    attention = Attention(family)
    function, graphs = compiled(lambda q, k, v: attention(q, k, v)[0], 18)
    query, *others = attention.inputs()
    function(query, *(tensor.detach() for tensor in others)).sum().backward()
    written = [node.op_type for node in graphs["backward"].lowered.model.graph]
    assert written.count("MatMul") == 3  # scores, gradient of the probabilities, gradient of the queries

    function, graphs = compiled(lambda q, k, v: attention(q, k, v)[0], 18)
    function(*(tensor.detach() for tensor in attention.inputs()))
    assert "Log" not in [node.op_type for node in graphs["inference"].lowered.model.graph]


@pytest.mark.parametrize("family", FAMILIES)
def test_known_lengths_are_constants(family):
    """CUDA's provider made a mask of 500411 rows: it read a length before it had arrived on the host."""
    attention = Attention(family, lengths=(6, 6), is_causal=True)
    function, graphs = compiled(lambda *args: attention(*args)[0], newest_opset())
    function(*attention.inputs()).sum().backward()
    assert set(graphs) == {"forward", "backward"}
    for graph in graphs.values():
        nodes = list(graph.lowered.model.graph)
        assert not {"Shape", "Size"} & {node.op_type for node in nodes}
        ranges = [node for node in nodes if node.op_type == "Range"]
        assert ranges
        assert all(value.const_value is not None for node in ranges for value in node.inputs)


def test_the_lengths_of_a_graph_on_a_cuda_device():
    graph = fx.Graph()
    with FakeTensorMode():
        inputs = [graph.placeholder(name) for name in ("query", "key", "value")]
        for node, length in zip(inputs, (5, 7, 7), strict=True):
            node.meta["val"] = torch.empty(2, 4, length, 8, device="cuda")
        call = graph.call_function(aten._scaled_dot_product_flash_attention.default, tuple(inputs))
        call.meta["val"] = aten._scaled_dot_product_flash_attention(*(node.meta["val"] for node in inputs))
    lengths = [graph.call_function(operator.getitem, (call, position)) for position in (4, 5)]
    for node, position in zip(lengths, (4, 5), strict=True):
        node.meta["val"] = call.meta["val"][position]
    graph.output(tuple(lengths))
    model = ir.to_proto(lower(fx.GraphModule({}, graph), "forward", 18).model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {value.name: torch.randn(value.shape).numpy() for value in session.get_inputs()}
    assert [result.item() for result in session.run(None, feeds)] == [5, 7]


@pytest.mark.parametrize(
    ("attention", "message"),
    [
        *((Attention(family, options={"dropout_p": 0.1}), "dropout_p=0.1 inside attention") for family in FAMILIES),
        *((Attention(family, options={"return_debug_mask": True}), "return_debug_mask") for family in (FLASH, CUDNN)),
    ],
)
def test_refusals_name_the_argument_and_the_line(attention, message):
    function, _ = compiled(lambda *args: attention(*args)[0], 18)
    with pytest.raises(BackendCompilerFailed) as caught:
        function(*(tensor.detach() for tensor in attention.inputs()))
    assert isinstance(caught.value.inner_exception, UnsupportedGraphError)
    assert message in str(caught.value.inner_exception)
    assert "test_cuda_attention.py:" in str(caught.value.inner_exception)
