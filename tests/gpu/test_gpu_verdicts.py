"""What the CPU's verdicts say of models holds on a GPU: Llamas, families, and torch's three fused attentions."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_map_only

from dort_compare import compare
from dort_compare.errors import UsageError
from dort_compare.models import PARTS, SOURCES, LlamaConfig, build
from dort_compare.models.families import FAMILIES, build_family
from dort_compare.models.llama import ATTENTIONS

if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

PRECISIONS = {"float32": None, "float16": torch.float16, "bfloat16": torch.bfloat16}
SIZES = LlamaConfig(hidden=128, heads=4, kv_heads=2, intermediate=192, vocabulary=50, layers=2)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("source", "part", "attention"), [*itertools.product(SOURCES, PARTS, ATTENTIONS)])
def test_a_llama_agrees(source: str, part: str, attention: str, precision: str, backward: bool) -> None:
    config = LlamaConfig(**{**vars(SIZES), "attention": attention, "layers": 2 if part == "model" else 1})
    module, inputs = build(part, config, source=source, seq=64, device="cuda", mask=part == "model")
    report = compare(module, inputs, backward=backward, autocast=PRECISIONS[precision], provider="cuda")
    assert report.verdict == "agree", str(report)
    assert report.fallbacks == ()


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_agrees(name: str, precision: str) -> None:
    try:
        model, args, kwargs = build_family(name)
    except UsageError as problem:
        pytest.skip(str(problem))
    args, kwargs = tree_map_only(Tensor, Tensor.cuda, (args, kwargs))
    autocast = PRECISIONS[precision]
    report = compare(model.cuda(), args, kwargs, backward=True, autocast=autocast, provider="cuda")
    assert report.verdict == "agree", str(report)
    assert not report.fallbacks


class Halved(nn.Module):
    """Computes with its number of rows."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sum(0) / (x.shape[0] // 2)


def test_numbers_that_torch_keeps_symbolic_are_compared_on_the_cpu() -> None:
    report = compare(Halved(), (torch.randn(7, 3, device="cuda"),), dynamic=True, provider="cuda")
    assert report.verdict == "agree", str(report)


class Attention(nn.Module):
    """Attention by one of torch's kernels."""

    def __init__(self, kernel: SDPBackend, is_causal: bool) -> None:
        super().__init__()
        self.kernel, self.is_causal = kernel, is_causal
        self.project = nn.Linear(64, 192)

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        query, key, value = self.project(x).unflatten(-1, (3, 2, 32)).permute(2, 0, 3, 1, 4)
        with sdpa_kernel(self.kernel):
            return F.scaled_dot_product_attention(query, key, value, bias, is_causal=self.is_causal)


KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("way", ["full", "causal", "biased"])
def test_fused_attention_agrees(kernel: SDPBackend, dtype: torch.dtype, way: str) -> None:
    if kernel is SDPBackend.FLASH_ATTENTION and way == "biased":
        pytest.skip("flash attention takes no bias")
    module = Attention(kernel, way == "causal").cuda().to(dtype)
    bias = (torch.randn(2, 1, 40, 40, device="cuda", dtype=dtype),) if way == "biased" else ()
    report = compare(
        module, (torch.randn(2, 40, 64, device="cuda", dtype=dtype), *bias), backward=True, provider="cuda"
    )
    assert report.verdict == "agree", str(report)
    assert not report.fallbacks
