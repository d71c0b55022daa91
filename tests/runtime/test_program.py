"""Programs: torch tensors in and out of ONNX Runtime without copies, as the FX graph would take and give them."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest
import torch
from onnx_ir.tensor_adapters import from_torch_dtype, to_torch_dtype
from torch.utils._python_dispatch import TorchDispatchMode

from dort_compare import provenance
from dort_compare.checks import Check
from dort_compare.errors import CheckError, ExecutionError
from dort_compare.runtime import Program, SessionSettings
from dort_compare.runtime.binding import Binding
from dort_compare.signature import GraphInput, GraphOutput, Signature

HEADER = '<ir_version: 10, opset_import: ["" : 20]> graph '
DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
]


def program(body: str, signature: Signature | None = None, **settings: Any) -> Program:
    """A program of an ONNX model in text form; by default it takes and returns what the model does."""
    model = ir.from_onnx_text(HEADER + body)
    if signature is None:
        inputs = tuple(GraphInput(value.name, to_torch_dtype(value.dtype)) for value in model.graph.inputs)
        outputs = tuple(GraphOutput(value.name, dtype=to_torch_dtype(value.dtype)) for value in model.graph.outputs)
        signature = Signature(inputs, outputs)
    return Program(model, signature, SessionSettings(**settings))


def copying(dtype: torch.dtype) -> Program:
    """The identity, as ONNX Runtime writes it to new memory."""
    name = from_torch_dtype(dtype).name.lower()
    return program(f"({name}[] x) => ({name}[] y) {{ y = Identity(x) }}")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(2, 3), (0, 3), ()], ids=["2x3", "empty", "0-d"])
def test_every_dtype_and_size_goes_through_unchanged(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x = (torch.randn(shape) * 10).to(dtype)
    (y,) = copying(dtype)(x)
    assert y.dtype == dtype
    assert y.shape == x.shape
    assert torch.equal(y, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_what_is_negated_by_a_mark_alone_goes_in_negated(dtype: torch.dtype) -> None:
    """As the imaginary part of a conjugate is, in the memory of the opposite numbers."""
    x = torch._neg_view(torch.tensor([1.0, -2.0], dtype=dtype))
    (y,) = copying(dtype)(x)
    assert y.tolist() == [-1.0, 2.0]


def test_large_integers_are_exact() -> None:
    x = torch.tensor([2**62 + 1, -(2**62) - 1])
    assert torch.equal(copying(torch.int64)(x)[0], x)


def test_float64_is_not_rounded_to_float32() -> None:
    x = torch.tensor([1.0 + 2.0**-50], dtype=torch.float64)
    assert torch.equal(copying(torch.float64)(x)[0], x)


@pytest.mark.parametrize(
    "x",
    [
        torch.arange(12.0).reshape(3, 4).t(),
        torch.arange(12.0)[::2],
        torch.arange(3.0).expand(4, 3),
        torch.arange(12.0)[5:],
        torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
    ],
    ids=["transposed", "strided", "expanded", "offset", "channels_last"],
)
def test_a_tensor_of_any_layout_enters_by_its_values(x: torch.Tensor) -> None:
    assert torch.equal(copying(torch.float32)(x)[0], x)


def test_a_tensor_that_requires_grad_enters_and_its_result_does_not_require_grad() -> None:
    (y,) = copying(torch.float32)(torch.ones(2, requires_grad=True))
    assert not y.requires_grad


class Calls(TorchDispatchMode):
    """Every operation of torch that runs, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.made.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_call_makes_no_operation_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is copied, cast or allocated by torch on the way in and out, whatever the dtype."""
    pointers: list[int] = []
    by_pointer = Binding._by_pointer

    def spy(self: Binding, tensors: list[torch.Tensor]) -> Any:
        pointers.extend(tensor.data_ptr() for tensor in tensors)
        return by_pointer(self, tensors)

    monkeypatch.setattr(Binding, "_by_pointer", spy)
    for dtype in DTYPES:
        x = torch.ones(1000, dtype=dtype)[3:]
        identity = copying(dtype)
        with Calls() as calls:
            identity(x)
        assert set(calls.made) <= {"aten.view.dtype", "aten.detach.default"}, dtype  # which make views
        assert not calls.made or dtype in (torch.bool, torch.bfloat16)
        assert dtype == torch.bfloat16 or pointers.pop() == x.data_ptr()


def test_a_tensor_that_is_not_contiguous_is_copied_once() -> None:
    identity, x = copying(torch.float32), torch.ones(3, 4).t()
    with Calls() as calls:
        identity(x)
    assert calls.made == ["aten.clone.default"]


def test_outputs_own_their_memory_and_outlive_program_and_inputs() -> None:
    identity = copying(torch.float32)
    x = torch.arange(1e6)
    (first,) = identity(x)
    (second,) = identity(x + 1)
    assert len({x.data_ptr(), first.data_ptr(), second.data_ptr()}) == 3
    expected = x.clone()
    del identity, x, second
    assert torch.equal(first, expected)


def test_an_input_written_after_the_run_does_not_reach_the_output() -> None:
    x = torch.ones(3)
    (y,) = copying(torch.float32)(x)
    x.zero_()
    assert torch.equal(y, torch.ones(3))


def test_symbolic_integers_go_in_and_out() -> None:
    signature = Signature((GraphInput("n", None),), (GraphOutput("double"), GraphOutput("n")))
    results = program("(int64 n) => (int64 double) { double = Add(n, n) }", signature)(7)
    assert results == [14, 7]
    assert all(type(result) is int for result in results)


def test_constants_repeated_outputs_and_inputs_handed_through() -> None:
    outputs = (
        GraphOutput(None),
        GraphOutput("y", dtype=torch.float32),
        GraphOutput("x", dtype=torch.float32),
        GraphOutput("y", dtype=torch.float32),
        GraphOutput(None, 3),
    )
    signature = Signature((GraphInput("x", torch.float32),), outputs)
    x = torch.ones(2)
    none, first, handed, second, three = program("(float[2] x) => (float[2] y) { y = Neg(x) }", signature)(x)
    assert none is None
    assert three == 3
    assert handed is x
    assert first is second
    assert torch.equal(first, -x)


def test_a_graph_that_computes_nothing_needs_no_session() -> None:
    signature = Signature((GraphInput("x", torch.float32),), (GraphOutput("x", dtype=torch.float32), GraphOutput(None)))
    x = torch.ones(2)
    assert program("(float[2] x) => () {}", signature)(x) == [x, None]


@pytest.mark.parametrize(("shape", "order"), [((2, 3, 4, 5), (0, 2, 3, 1)), ((3, 4), (1, 0))])
def test_an_output_gets_the_memory_order_that_torch_promised(shape: tuple[int, ...], order: tuple[int, ...]) -> None:
    signature = Signature((GraphInput("x", torch.float32),), (GraphOutput("y", dtype=torch.float32, order=order),))
    x = torch.randn(shape)
    (y,) = program("(float[] x) => (float[] y) { y = Identity(x) }", signature)(x)
    assert torch.equal(y, x)
    assert y.permute(order).is_contiguous()


def test_the_boxed_form_empties_its_arguments() -> None:
    arguments: list[Any] = [torch.ones(2)]
    boxed = copying(torch.float32).boxed()
    assert boxed._boxed_call  # type: ignore[attr-defined]
    assert torch.equal(boxed(arguments)[0], torch.ones(2))
    assert arguments == []


def _broken(body: str) -> ir.Model:
    model = ir.from_onnx_text(HEADER + body)
    node = model.graph[-1]
    node.name = "sum_1.Reshape"
    origin = provenance.Provenance("sum_1", "aten.sum.default", "forward", "mlp", "model.py:7")
    node.metadata_props.update(origin.metadata())
    return model


@pytest.mark.parametrize(
    "body",
    [
        "(float[2,3] x, float[2,3] z) => (float[2,2] y) { y = MatMul(x, z) }",
        "(float[2] x, int64[2] z) => (float[2] y) { y = Add(x, z) }",
        "(float[2] x, float[2] z) => (float[2] y) { y = Nonsense(x, z) }",
    ],
    ids=["shapes", "dtypes", "operator"],
)
def test_a_refused_model_names_the_fx_node_and_the_source_line(body: str) -> None:
    model = _broken(body)
    signature = Signature((GraphInput("x", None), GraphInput("z", None)), (GraphOutput("y"),))
    with pytest.raises(ExecutionError) as caught:
        Program(model, signature, SessionSettings())
    assert "FX node sum_1 (aten.sum.default, model.py:7)" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_failing_kernel_names_the_fx_node_and_the_source_line() -> None:
    model = _broken("(float[N] x, int64[2] z) => (float[A,B] y) { y = Reshape(x, z) }")
    signature = Signature((GraphInput("x", torch.float32), GraphInput("z", torch.int64)), (GraphOutput("y"),))
    failing = Program(model, signature, SessionSettings())
    with pytest.raises(ExecutionError) as caught:
        failing(torch.ones(5), torch.tensor([2, 3]))
    assert "FX node sum_1 (aten.sum.default, model.py:7)" in str(caught.value)
    assert "\n" not in str(caught.value)


CHECKED = """(int64[N] x, int64[1] n) => (bool few, int64[A] made, bool full) {
    hundred = Constant<value_int = 100>()
    number = ReduceSum<keepdims = 0>(n)
    few = Less(number, hundred)
    made = Expand(x, n)
    size = Size(made)
    full = Less(number, size)
}"""


@pytest.mark.parametrize(
    ("n", "error", "message"),
    [(101, CheckError, "below 100"), (4, ExecutionError, "Expand")],
)
def test_a_check_comes_before_the_error_of_what_it_guards(n: int, error: type[Exception], message: str) -> None:
    """``full`` cannot be computed where ``made`` fails: then the error is that of ``made``."""
    inputs = (GraphInput("x", torch.int64), GraphInput("n", torch.int64))
    checks = (Check("full", "more than one"), Check("few", "below 100"))
    guarded = program(CHECKED, Signature(inputs, (GraphOutput("made", dtype=torch.int64),), checks))
    with pytest.raises(error, match=message):
        guarded(torch.arange(3), torch.tensor([n]))


def test_too_little_memory_is_torchs_error() -> None:
    signature = Signature((GraphInput("n", torch.int64),), (GraphOutput("y", dtype=torch.float32),))
    huge = program("(int64[1] n) => (float[N] y) { y = ConstantOfShape(n) }", signature)
    with pytest.raises(torch.OutOfMemoryError, match="Failed to allocate memory") as caught:
        huge(torch.tensor([2**44]))
    assert isinstance(caught.value, ExecutionError)
    assert huge(torch.tensor([2]))[0].tolist() == [0, 0]  # type: ignore[union-attr]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
class TestCuda:
    def test_runs_in_order_with_the_current_stream(self) -> None:
        there = GraphOutput("y", dtype=torch.float32, device=torch.device("cuda", 0))
        signature = Signature((GraphInput("x", torch.float32),), (there,))
        body = "(float[N,N] x) => (float[N,N] y) { y = MatMul(x, x) }"
        square = program(body, signature, providers=("cuda", "cpu"))
        x = torch.randn(2048, 2048, device="cuda")
        for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                made = (x @ x).tanh()  # still running when the program is called
                (y,) = square(made)
                difference = (y - made @ made).abs().max()
            assert difference.item() <= 1e-2

    def test_outputs_lie_on_the_device_that_the_graph_names(self) -> None:
        outputs = (
            GraphOutput("y", dtype=torch.float32, device=torch.device("cuda", 0)),
            GraphOutput("z", dtype=torch.float32, device=torch.device("cpu")),
        )
        signature = Signature((GraphInput("x", torch.float32),), outputs)
        body = "(float[2] x) => (float[2] y, float[2] z) { y = Neg(x) z = Abs(x) }"
        y, z = program(body, signature, providers=("cuda", "cpu"))(torch.ones(2, device="cuda"))
        assert y.device.type == "cuda"
        assert z.device.type == "cpu"
        assert torch.equal(z, torch.ones(2))

    def test_a_size_that_the_device_computes_is_waited_for(self) -> None:
        there = GraphOutput("y", dtype=torch.int64, device=torch.device("cuda", 0))
        signature = Signature((GraphInput("n", torch.int64),), (there,))
        numbers = "zero = Constant<value_int=0>() one = Constant<value_int=1>()"
        body = f"(int64 n) => (int64[N] y) {{ {numbers} y = Range(zero, n, one) }}"
        count = program(body, signature, providers=("cuda", "cpu"))
        slow = torch.randn(4096, 4096, device="cuda")
        for size in range(1, 100):
            n = (slow @ slow).isfinite().sum() * 0 + size
            assert torch.equal(count(n)[0], torch.arange(size, device="cuda"))  # type: ignore[arg-type]


def test_what_is_raised_is_not_printed_too_unless_more_is_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    x, out_of_range = torch.randn(4, 2), torch.tensor([900])
    for options in ({}, {"session_options": {"log_severity_level": 2}}):
        torch._dynamo.reset()
        compiled = torch.compile(lambda x, i: x[i].sin(), backend="dort", options={"fallback": False, **options})
        with pytest.raises(IndexError):
            compiled(x, out_of_range)
        assert ("ExecuteKernel" in capfd.readouterr().err) == bool(options)
