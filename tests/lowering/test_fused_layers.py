"""torch's fused transformer layers, decomposed and run on ONNX Runtime, against their kernels and float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from dort_compare import DebugBackend
from dort_compare.backends import CompiledGraph

aten = torch.ops.aten
BATCH, LENGTH, WIDTH, HEADS = 2, 5, 6, 3
HIDDEN = torch.rand(BATCH, HEADS, LENGTH, LENGTH, generator=torch.Generator().manual_seed(0)) > 0.6
NOTHING_SEEN = torch.tensor([[True] * LENGTH, [False] * LENGTH])
MASKS: dict[str, tuple[Tensor | None, int | None]] = {
    "none": (None, None),
    "of queries and keys": (torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1), 0),
    "of keys": (torch.arange(LENGTH) >= torch.tensor([[3], [5]]), 1),
    "of a whole sequence": (NOTHING_SEEN, 1),
    "of every head": (HIDDEN, 2),
    "of every head, type left out": (HIDDEN, None),
    "of every head, type of another": (HIDDEN, 1),
    "added": (torch.zeros(LENGTH, LENGTH).masked_fill(torch.ones(LENGTH, LENGTH).triu(1) > 0, -torch.inf), 0),
    "added, not infinite": (torch.linspace(-1, 1, LENGTH).expand(BATCH, LENGTH).relu(), 1),
}
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-14, torch.float16: 3e-3, torch.bfloat16: 3e-2}
OTHERS = [dtype for dtype in TOLERANCE if dtype != torch.float32]
cases = pytest.mark.parametrize(
    ("mask", "dtype"),
    [*((mask, torch.float32) for mask in MASKS), *(("of every head", dtype) for dtype in OTHERS)],
    ids=str,
)


def encoder_layer(dtype: torch.dtype, mask: str, use_gelu: bool, norm_first: bool, length: int = LENGTH) -> list[Any]:
    """Arguments of the fused encoder layer."""
    torch.manual_seed(0)
    new = lambda *shape: torch.randn(shape).to(dtype)  # noqa: E731
    projections = [new(3 * WIDTH, WIDTH), new(3 * WIDTH), new(WIDTH, WIDTH), new(WIDTH)]
    norms = [new(WIDTH) for _ in range(4)]
    ffn = [new(7, WIDTH), new(7), new(WIDTH, 7), new(WIDTH)]
    flags = [use_gelu, norm_first, 1e-3]
    return [new(BATCH, length, WIDTH), WIDTH, HEADS, *projections, *flags, *norms, *ffn, *MASKS[mask]]


def attention(dtype: torch.dtype, mask: str, need_weights: bool = True, average: bool = True) -> list[Any]:
    """Arguments of the fused attention of a tensor to itself."""
    x, *rest = encoder_layer(dtype, mask, use_gelu=False, norm_first=False)
    return [x, x, x, *rest[:6], MASKS[mask][0], need_weights, average, MASKS[mask][1]]


def check(op: torch._ops.OpOverload, args: list[Any], dtype: torch.dtype) -> None:
    backend = DebugBackend(fallback=False)
    torch._dynamo.reset()
    results = torch.compile(lambda: op(*args), backend=backend, dynamic=False)()
    assert op not in targets(backend.graphs)
    expected, exact = op(*args), op(*tree_map_only(Tensor, widened, args))
    assert_close(results, expected, exact, dtype)


def widened(x: Tensor) -> Tensor:
    return x.double() if x.is_floating_point() else x


def targets(graphs: list[CompiledGraph]) -> set[Any]:
    return {node.target for graph in graphs for node in graph.graph_module.graph.nodes}


def assert_close(results: Any, expected: Any, exact: Any, dtype: torch.dtype) -> None:
    if not isinstance(expected, tuple):
        results, expected, exact = (results,), (expected,), (exact,)
    for result, torchs, wide in zip(results, expected, exact, strict=True):
        if torchs is None:
            assert result is None
            continue
        assert (result.dtype, result.shape) == (torchs.dtype, torchs.shape)
        assert torch.equal(result.isnan(), torchs.isnan())
        scale = wide.nan_to_num().abs().max()
        torch.testing.assert_close(result.double(), wide, rtol=0, atol=TOLERANCE[dtype] * scale, equal_nan=True)


@cases
def test_an_encoder_layer_is_torchs(mask: str, dtype: torch.dtype) -> None:
    check(aten._transformer_encoder_layer_fwd.default, encoder_layer(dtype, mask, True, True), dtype)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("use_gelu", [False, True])
def test_activation_and_place_of_the_norms(use_gelu: bool, norm_first: bool) -> None:
    args = encoder_layer(torch.float32, "none", use_gelu, norm_first)
    check(aten._transformer_encoder_layer_fwd.default, args, torch.float32)


@cases
def test_attention_is_torchs(mask: str, dtype: torch.dtype) -> None:
    check(aten._native_multi_head_attention.default, attention(dtype, mask), dtype)


@pytest.mark.parametrize(("need_weights", "average"), [(False, True), (True, False)])
def test_weights_are_left_out_or_those_of_every_head(need_weights: bool, average: bool) -> None:
    check(
        aten._native_multi_head_attention.default,
        attention(torch.float32, "of keys", need_weights, average),
        torch.float32,
    )


def test_attention_to_another_tensor_is_left_to_torch() -> None:
    x, _, _, *rest = attention(torch.float32, "none")
    backend = DebugBackend()
    op = aten._native_multi_head_attention.default
    result, weights = torch.compile(lambda y: op(x, y, y, *rest), backend=backend)(x + 1)
    assert [each.target for each in backend.fallbacks] == [str(op)]
    torch.testing.assert_close((result, weights), op(x, x + 1, x + 1, *rest))


def test_a_mask_of_another_size_is_refused_by_torch() -> None:
    args = encoder_layer(torch.float32, "of keys", True, True, length=1)
    with pytest.raises(RuntimeError, match="mask shape should be"):
        torch.compile(lambda: aten._transformer_encoder_layer_fwd.default(*args), backend=DebugBackend())()


@pytest.mark.parametrize("dynamic", [False, True])
def test_an_encoder_of_modules_runs_whole(dynamic: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    backend = DebugBackend(fallback=False)
    compiled = torch.compile(model, backend=backend, dynamic=dynamic)
    with torch.no_grad():
        for batch, length in ((2, 5), (3, 4)):
            x, padding = torch.randn(batch, length, 8), torch.arange(length).repeat(batch, 1) > 2
            torch.testing.assert_close(
                compiled(x, src_key_padding_mask=padding), model(x, src_key_padding_mask=padding)
            )
    assert len(backend.graphs) == (1 if dynamic else 2)
