"""What ``dort`` leaves to torch's kernels: large transforms, and attention on a GPU, where the CPU's stands for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._higher_order_ops import while_loop

from dort_compare import DebugBackend, provenance
from dort_compare.backends import building, left_to_torch, slow_in_onnx, slow_products
from dort_compare.lowering import registry
from dort_compare.models import LlamaConfig, build
from dort_compare.runtime import Program

aten = torch.ops.aten
LLAMA = LlamaConfig(hidden=64, heads=4, kv_heads=2, intermediate=96, vocabulary=50, layers=2, attention="sdpa")
FORWARD = "_scaled_dot_product_flash_attention_for_cpu"


@pytest.fixture(autouse=True)
def _leave_the_cpus_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    attention = getattr(aten, FORWARD).default, getattr(aten, f"{FORWARD}_backward").default
    monkeypatch.setattr(left_to_torch, "ATTENTION", set(attention))


def gradients(function: Any, model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
    model.zero_grad()
    function(*inputs).square().mean().backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """The FX nodes that the ONNX nodes of each program come from, in the order in which programs are made."""
    found: list[set[str]] = []

    class Seen(Program):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            found.append({node.metadata_props[provenance.FX_NODE] for node in self.model.graph})

    monkeypatch.setattr(building, "Program", Seen)
    return found


def attention_of(programs: Sequence[set[str]]) -> list[str]:
    return [name for program in programs for name in program if name.startswith(FORWARD)]


@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_a_model_trains_as_in_eager(autocast: torch.dtype | None, said_by: Any) -> None:
    model, inputs = build("model", LLAMA, seq=32)
    with torch.autocast("cpu", autocast, enabled=autocast is not None):
        right = gradients(model, model, inputs)
        found = gradients(torch.compile(model, backend="dort"), model, inputs)
    allowed = 2e-2 if autocast else 1e-5
    for name, gradient in right.items():
        assert (found[name] - gradient).norm() <= allowed * gradient.norm(), name
    assert said_by("dort_compare") == []


def test_the_rest_runs_in_onnx_runtime_in_pieces_around_it(made: list[set[str]]) -> None:
    model, inputs = build("model", LLAMA, seq=32)
    gradients(torch.compile(model, backend="dort"), model, inputs)
    assert len(made) == 6, "three of the forward graph around two layers' attention, three of the backward one"
    assert not attention_of(made)


@pytest.mark.parametrize("has_lowering", [True, False])
def test_what_else_has_none_falls_back_alone(
    made: list[set[str]], said_by: Any, monkeypatch: pytest.MonkeyPatch, has_lowering: bool
) -> None:
    model, inputs = build("model", LLAMA, seq=32)
    noisy = nn.Sequential(model, nn.Dropout())
    for target in () if has_lowering else left_to_torch.ATTENTION:
        registry.registered()
        monkeypatch.delitem(registry._TABLE, target)
    gradients(torch.compile(noisy, backend="dort"), noisy, inputs)
    (warning,) = said_by("dort_compare")
    assert "forward graph: 1 of" in warning
    assert "native_dropout" in warning
    assert "attention" not in warning
    assert len(made) >= 6
    assert not attention_of(made)


@pytest.mark.parametrize("how", ["no fallback", "dump", "debug"])
def test_where_graphs_are_looked_at_or_all_is_asked_for_nothing_is_left(
    made: list[set[str]], tmp_path: Path, how: str
) -> None:
    model, inputs = build("model", LLAMA, seq=32)
    options = {"no fallback": {"fallback": False}, "dump": {"dump": tmp_path}, "debug": {"rewrites": True}}[how]
    backend = DebugBackend(**options) if how == "debug" else "dort"
    compiled = torch.compile(model, backend=backend, options=None if how == "debug" else options)
    gradients(compiled, model, inputs)
    forward, *backward = made
    assert attention_of([forward])
    assert attention_of(backward)


def test_the_log_says_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    model, inputs = build("attention", LLAMA, seq=32)
    torch.compile(model, backend="dort", options={"verbose": 3})(*inputs)
    assert f"in eager torch: {left_to_torch.FUSED}" in capsys.readouterr().err


@pytest.mark.parametrize("length", [60, 10_000])
def test_large_transforms_are_left(made: list[set[str]], said_by: Any, length: int) -> None:
    model = nn.Sequential(nn.LayerNorm(length), Convolved(length), nn.Tanh())
    inputs = (torch.randn(4, length),)
    right = gradients(model, model, inputs)
    found = gradients(torch.compile(model, backend="dort"), model, inputs)
    for name, gradient in right.items():
        torch.testing.assert_close(found[name], gradient)
    transforms = {name for program in made for name in program if "fft" in name}
    assert bool(transforms) is (length == 60)
    assert (len(made) > 2) is not (length == 60)
    assert said_by("dort_compare") == []


PASSES = nn.Sequential(
    nn.GroupNorm(2, 4), nn.SiLU(), nn.Mish(), nn.GELU(), nn.LayerNorm(32), nn.Softmax(-1), nn.LogSoftmax(-1)
)
NAMES = ("group_norm_backward", "silu", "mish", "gelu_backward", "layer_norm_backward", "softmax_backward_data")


@pytest.mark.parametrize(("many", "on_gpu"), [(1024, True), (1025, True), (1024, False)])
@pytest.mark.parametrize("precision", [None, torch.bfloat16])
def test_large_operands_of_several_passes_are_left_on_a_gpu(
    made: list[set[str]],
    said_by: Any,
    monkeypatch: pytest.MonkeyPatch,
    many: int,
    on_gpu: bool,
    precision: torch.dtype | None,
) -> None:
    monkeypatch.setattr(left_to_torch, "_VERY_MANY", many)
    monkeypatch.setattr(left_to_torch, "_is_on_gpu", lambda _: on_gpu)
    model, inputs = (
        PASSES if precision is None else PASSES[1:4].to(precision),
        (torch.randn(8, 4, 32, dtype=precision),),
    )
    model = nn.Sequential(Scaled().to(precision or torch.float32), model)
    right = gradients(model, model, inputs)
    found = gradients(torch.compile(model, backend="dort"), model, inputs)
    for name, gradient in right.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4 if precision is None else 0.05, atol=1e-6)
    lowered = {name for program in made for name in program}
    seen = [name for name in NAMES if any(name in node for node in lowered)]
    known = NAMES if precision is None else ("silu", "mish", "gelu_backward")
    assert seen == ([] if on_gpu and many == 1024 else [name for name in NAMES if name in known])
    assert said_by("dort_compare") == []


@pytest.mark.parametrize("cudagraphs", [True, False])
def test_unequal_parts_are_left_where_a_graph_is_recorded(
    made: list[set[str]], monkeypatch: pytest.MonkeyPatch, cudagraphs: bool
) -> None:
    class Parts(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            one, two, three = x.tanh().split([3, 3, 4], 1)
            halves = x.sin().chunk(2, 1)
            rest = x.cos().split(4, 1)
            return (
                torch.cat([one * two, three], 1).exp()
                + torch.cat([*halves, rest[2]], 1).sum()
                + torch.cat(halves).sum()
            )

    model, inputs = nn.Sequential(Scaled(), Parts()), (torch.randn(2, 10),)
    right = gradients(model, model, inputs)
    found = gradients(torch.compile(model, backend="dort", options={"cudagraphs": cudagraphs}), model, inputs)
    torch.testing.assert_close(found, right)
    lowered = {name for program in made for name in program} & {"cat", "cat_1", "cat_2"}
    assert lowered == ({"cat_2"} if cudagraphs else {"cat", "cat_1", "cat_2"}), "the last one joins halves"


def of_rows(rows: int) -> torch.Tensor:
    """The places of rows, most of them several times."""
    return torch.arange(rows) * 7 % (rows // 4)


def added(x: torch.Tensor) -> torch.Tensor:
    return x.new_zeros(len(x), 16).index_add(0, of_rows(len(x)), x)


def put(x: torch.Tensor, accumulate: bool) -> torch.Tensor:
    rows = of_rows(len(x)) if accumulate else torch.arange(len(x) - 1, -1, -1)
    return x.new_zeros(len(x), 16).index_put((rows,), x, accumulate=accumulate)


def replicated(x: torch.Tensor) -> torch.Tensor:
    """Each row as an image of 2 x 2 with a border."""
    return nn.functional.pad(x.view(1, -1, 2, 2), (1, 1, 1, 1), "replicate")


def pooled(x: torch.Tensor) -> torch.Tensor:
    """Each row as an image of 4 x 4."""
    return nn.functional.max_pool2d(x.view(1, -1, 4, 4), 2)


ROWS = 2**15 // 16
SLOW: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], tuple[int, int], tuple[int, int]]] = {
    "index_add": (added, (ROWS, 16), (ROWS - 4, 16)),
    "index_put": (partial(put, accumulate=True), (ROWS, 16), (ROWS - 4, 16)),
    "scatter_add": (lambda x: torch.zeros_like(x).scatter_add(0, x.argsort(0), x), (ROWS, 16), (ROWS - 4, 16)),
    "cumprod": (lambda x: x.tanh().cumprod(1), (ROWS, 16), (ROWS - 4, 16)),
    "sum_1": (lambda x: x.relu() * (x > 0).long().sum(1, keepdim=True), (ROWS, 16), (ROWS - 4, 16)),
    "replication_pad2d_backward": (replicated, (ROWS, 4), (ROWS - 4, 4)),
    "max_pool2d_with_indices": (pooled, (ROWS, 16), (ROWS - 4, 16)),
    "max_pool2d_with_indices_backward": (pooled, (ROWS, 16), (ROWS - 4, 16)),
    "max_pool3d_with_indices": (lambda x: nn.functional.max_pool3d(x[None, None], 1), (ROWS, 16), (ROWS - 4, 16)),
    "erfc": (torch.erfc, (2**11, 1), (2**11 - 1, 1)),
    "linalg_inv_ex": (lambda x: torch.linalg.inv(x + 9 * torch.eye(len(x))), (8, 8), (7, 7)),
    "linalg_cholesky_ex": (lambda x: torch.linalg.cholesky(x @ x.mT + torch.eye(len(x))), (8, 8), (7, 7)),
}


@pytest.mark.parametrize("name", SLOW)
def test_what_is_slow_in_onnx_runtime_is_left_from_some_size_on(made: list[set[str]], said_by: Any, name: str) -> None:
    function, large, small = SLOW[name]
    model = nn.Sequential(Scaled(), Calling(function))
    for shape in (large, small):
        made.clear()
        torch._dynamo.reset()
        inputs = (torch.randn(shape),)
        right = gradients(model, model, inputs)
        torch.testing.assert_close(gradients(torch.compile(model, backend="dort"), model, inputs), right)
        lowered = {node for program in made for node in program}
        assert (name in lowered) is (shape == small), lowered
        assert not said_by("dort_compare")


LARGE = slow_in_onnx.MAPPED // torch.float32.itemsize // 16


@pytest.mark.parametrize(
    ("table", "rows", "dtype", "is_left"),
    [
        (9, ROWS, torch.float32, True),
        (LARGE - 1, 32, torch.float32, True),
        (LARGE, 32, torch.float32, False),
        (LARGE // 2, 32, torch.float64, False),
        (2 * LARGE, 32, torch.float16, True),
        (LARGE, LARGE // 6, torch.float32, False),
        (LARGE, LARGE // 6 + 1, torch.float32, True),
    ],
    ids=["many rows", "few rows", "of a large table", "in float64", "in float16", "a sixth", "more than a sixth"],
)
def test_gradients_of_what_is_read_at_indices_are_left(
    made: list[set[str]], table: int, rows: int, dtype: torch.dtype, is_left: bool
) -> None:
    model, inputs = nn.Sequential(nn.Embedding(table, 16, dtype=dtype), nn.Tanh()), (torch.arange(rows) % table,)
    right = gradients(model, model, inputs)
    torch.testing.assert_close(gradients(torch.compile(model, backend="dort"), model, inputs), right)
    assert any("embedding_dense_backward" in program for program in made) is not is_left
    assert any("embedding" in program for program in made)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("index_put", partial(put, accumulate=False)),
        ("index_select", lambda x: x.index_select(0, of_rows(len(x)))),
        ("index_select", lambda x: x.index_select(1, torch.arange(15, -1, -1))),
    ],
)
def test_what_goes_by_whole_slices_is_not_left(made: list[set[str]], name: str, function: Any) -> None:
    x = torch.randn(ROWS, 16)
    with torch.no_grad():
        assert torch.equal(torch.compile(Calling(function), backend="dort")(x), function(x))
    assert [name in program for program in made] == [True]


def test_a_pool_whose_places_nobody_wants_is_not_left(made: list[set[str]]) -> None:
    x = torch.randn(ROWS, 16)
    with torch.no_grad():
        assert torch.equal(torch.compile(Calling(pooled), backend="dort")(x), pooled(x))
    assert ["max_pool2d_with_indices" in program for program in made] == [True]


@pytest.mark.parametrize("how", ["on a GPU", "of a size that shows in a run", "where all is asked for"])
def test_it_is_not_left(made: list[set[str]], monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    if how == "on a GPU":
        monkeypatch.setattr(left_to_torch, "_is_on_gpu", lambda _: True)
    function = (lambda x: added(x[x[:, 0] > 9])) if how.startswith("of") else added
    options = {"fallback": False} if how.startswith("where") else {}
    with torch.no_grad(), torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        torch.compile(Calling(function), backend="dort", options=options)(torch.randn(ROWS, 16) + 8)
    assert any("index_add" in program for program in made)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("index_add", lambda x: x.index_add(0, torch.tensor([1, 1]), x[:2])),
        ("index_put", lambda x: x.index_put((torch.tensor([1, 1]),), x[:2], accumulate=True)),
        ("scatter_add", lambda x: x.scatter_add(0, torch.ones(2, 16, dtype=torch.int64), x)),
        ("sum_1", lambda x: (x > 0).sum(1)),
    ],
)
def test_few_updates_of_a_large_table_and_counts_are_not_left(made: list[set[str]], name: str, function: Any) -> None:
    x = torch.randn(ROWS, 16)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(Calling(function), backend="dort")(x), function(x))
    assert [name in program for program in made] == [True]


def test_what_onnx_runtime_cannot_run_is_still_a_fallback(said_by: Any) -> None:
    x = torch.randn(ROWS, 16, dtype=torch.complex64)
    with torch.no_grad():
        found = torch.compile(lambda x: (x * 2).cumprod(1).real, backend="dort")(x)
    torch.testing.assert_close(found, (x * 2).cumprod(1).real)
    assert "aten.cumprod" in " ".join(said_by("dort_compare"))


def of_sizes(x: torch.Tensor) -> torch.Tensor:
    return torch.special.zeta(x.shape[1], x.abs() + 1) + x.shape[0] % (x * 2)


def test_a_number_in_front_of_a_tensor_is_on_no_device(made: list[set[str]]) -> None:
    x = torch.rand(ROWS, 16)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(of_sizes, backend="dort", dynamic=True)(x), of_sizes(x))
    assert not any({"remainder", "special_zeta"} & program for program in made)


def of_a_branch(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, torch.cos, torch.sin, (x * 2,)).erfc().sin()


def of_a_loop(x: torch.Tensor) -> torch.Tensor:
    start = (torch.zeros((), dtype=torch.int64), x * 2)
    _, found = while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y.sin() + x), start)
    return found.erfc().sin()


@pytest.mark.parametrize(("function", "call"), [(of_a_branch, "cond"), (of_a_loop, "while_loop")])
def test_the_piece_that_reads_them_holds_the_graphs_of_branches_and_loops(
    function: Callable[..., torch.Tensor], call: str, made: list[set[str]], said_by: Any
) -> None:
    x = torch.randn(ROWS, 16)
    torch.testing.assert_close(torch.compile(function, backend="dort")(x), function(x))
    assert [program & {call, "erfc", "sin"} for program in made] == [{call}, {"sin"}]
    assert said_by("dort_compare") == []


def test_all_that_is_slow_in_onnx_runtime_has_a_lowering() -> None:
    lowered = {getattr(target, "overloadpacket", None) for target in registry.registered()}
    assert slow_in_onnx.SIZES.keys() - lowered == {aten.mvlgamma}, "which torch decomposes"


LONG = 2**11


@pytest.mark.parametrize(
    ("queries", "is_causal", "trains", "dtype", "left"),
    [
        (LONG, True, False, torch.float32, {"forward"}),
        (LONG, False, False, torch.float32, set()),
        (LONG, False, True, torch.float32, {"forward", "backward"}),
        (LONG, True, True, torch.float64, {"forward", "backward"}),
        (LONG, True, False, torch.bfloat16, set()),
        (LONG - 8, True, True, torch.float32, set()),
    ],
)
def test_long_attention_on_the_cpu_is_left_where_it_is_causal_or_trained(
    made: list[set[str]],
    said_by: Any,
    monkeypatch: pytest.MonkeyPatch,
    queries: int,
    is_causal: bool,
    trains: bool,
    dtype: torch.dtype,
    left: set[str],
) -> None:
    monkeypatch.setattr(left_to_torch, "ATTENTION", set())
    monkeypatch.setattr(slow_in_onnx, "LONG", LONG)

    def attend(x: torch.Tensor, short: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(x * 2, short, short.sin(), is_causal=is_causal) * 0.5

    inputs = [torch.randn(1, 1, size, 8, dtype=dtype, requires_grad=trains) for size in (queries, 24)]
    found, right = (function(*inputs) for function in (torch.compile(attend, backend="dort"), attend))
    tolerance = 1e-2 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(found, right, rtol=tolerance, atol=tolerance)
    if trains:
        gradients = (torch.autograd.grad(each.square().sum(), inputs) for each in (found, right))
        torch.testing.assert_close(*gradients)
    lowered = {"backward" if "backward" in name else "forward" for name in attention_of(made)}
    assert lowered == {"forward", "backward"} - left - (set() if trains else {"backward"})
    assert not said_by("dort_compare")


class Scaled(nn.Module):
    """A factor, so that there is a gradient to compare."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


class Calling(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


class Convolved(nn.Module):
    """A circular convolution."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(length) / length**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(self.kernel))


@pytest.fixture
def with_avx512(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Where products are large from 64 operations on, and gradients of convolutions from 64 elements on."""
    for name, value in {"HAS_AVX512": True, "IS_INTEL": True, "MANY": 64, "LARGE": 64}.items():
        monkeypatch.setattr(slow_products, name, value)
    return monkeypatch


def network(dtype: torch.dtype = torch.float32) -> tuple[nn.Module, tuple[torch.Tensor]]:
    """Convolutions with and without neighbours in their kernels, and linear layers with and without a bias."""
    torch.manual_seed(0)
    convolutions = nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Conv2d(4, 2, 1), nn.Tanh(), nn.Flatten()
    model = nn.Sequential(*convolutions, nn.Linear(32, 8), nn.Tanh(), nn.Linear(8, 4, bias=False)).to(dtype)
    return model, (torch.randn(2, 3, 6, 6, dtype=dtype),)


def products(programs: Sequence[set[str]]) -> list[str]:
    """The products of matrices and gradients of convolutions in ONNX Runtime, by operator."""
    names = (name for program in programs for name in program)
    return sorted(name.rstrip("_0123456789") for name in names if name.startswith(("mm", "addmm", "convolution_b")))


def test_large_products_of_training_are_left_on_processors_with_avx512(
    made: list[set[str]], with_avx512: pytest.MonkeyPatch
) -> None:
    model, inputs = network()
    right = gradients(model, model, inputs)
    torch.testing.assert_close(gradients(torch.compile(model, backend="dort"), model, inputs), right)
    assert products(made) == ["convolution_backward"]  # that of 1 x 1


def test_gradients_of_convolutions_alone_are_left_on_other_processors_than_intels(
    made: list[set[str]], with_avx512: pytest.MonkeyPatch
) -> None:
    with_avx512.setattr(slow_products, "IS_INTEL", False)
    model, inputs = network()
    right = gradients(model, model, inputs)
    torch.testing.assert_close(gradients(torch.compile(model, backend="dort"), model, inputs), right)
    assert products(made) == ["addmm", "convolution_backward", *["mm"] * 5]


@pytest.mark.parametrize("how", ["small", "in float64", "without avx512", "inference"])
def test_other_products_are_not_left(made: list[set[str]], with_avx512: pytest.MonkeyPatch, how: str) -> None:
    if how == "small":
        with_avx512.setattr(slow_products, "MANY", 10**6)
        with_avx512.setattr(slow_products, "LARGE", 10**6)
    if how.startswith("without"):
        with_avx512.setattr(slow_products, "HAS_AVX512", False)
    model, inputs = network(torch.float64 if how.endswith("64") else torch.float32)
    compiled = torch.compile(model, backend="dort")
    if how == "inference":
        with torch.no_grad():
            torch.testing.assert_close(compiled(*inputs), model(*inputs))
        assert products(made) == ["addmm", "mm"]
        return
    torch.testing.assert_close(gradients(compiled, model, inputs), gradients(model, model, inputs))
    gradients_of_convolutions = [] if how == "in float64" else ["convolution_backward"] * 2  # no kernels in float64
    assert products(made) == ["addmm", *gradients_of_convolutions, *["mm"] * 5]
