"""The plain torch Llama agrees with transformers, value by value and gradient by gradient, and compiles."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from every_pair import every_pair
from torch import nn

from dort_compare.errors import UsageError
from dort_compare.models import PARTS, SOURCES, LlamaConfig, build

MASKED_PARTS = [("attention", False), ("decoder", False), ("model", False), ("model", True)]

every_part = pytest.mark.parametrize(("part", "mask"), MASKED_PARTS)
every_attention = pytest.mark.parametrize("attention", ["eager", "sdpa"])
every_source = pytest.mark.parametrize("source", SOURCES)


def small(**changes: Any) -> LlamaConfig:
    sizes: dict[str, Any] = {"hidden": 64, "heads": 4, "intermediate": 96, "vocabulary": 50, "layers": 2, **changes}
    return LlamaConfig(**sizes)


def make(part: str, config: LlamaConfig, source: str, mask: bool = False) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    if source == "hf":
        pytest.importorskip("transformers")
    return build(part, config, source=source, seq=16, mask=mask)


def values(module: nn.Module, inputs: tuple[torch.Tensor, ...], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Output, gradient of every parameter and, where it has one, gradient of the input; bfloat16 means autocast."""
    first, *others = inputs
    first = first.clone().requires_grad_(first.is_floating_point())
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        output = module(first, *others)
    output.backward(torch.linspace(-1, 1, output.numel(), dtype=output.dtype).reshape(output.shape))
    found = {"output": output.detach()}
    for name, leaf in [("input", first), *module.named_parameters()]:
        if leaf.requires_grad:
            assert leaf.grad is not None, f"{name} has no gradient"
            found[name.removeprefix("hf.")] = leaf.grad
    return found


def assert_close(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], tolerance: float) -> None:
    """Largest difference over the largest element of what is expected, at most ``tolerance``."""
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert actual[name].dtype == value.dtype, name
        assert (actual[name] - value).abs().max() <= tolerance * value.abs().max(), name


@every_part
@every_attention
@pytest.mark.parametrize("kv_heads", [None, 2, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "autocast"])
def test_agrees_with_transformers(
    part: str, mask: bool, attention: str, kv_heads: int | None, dtype: torch.dtype
) -> None:
    config = small(attention=attention, kv_heads=kv_heads)
    native = values(*make(part, config, "native", mask), dtype)
    hf = values(*make(part, config, "hf", mask), dtype)
    assert_close(native, hf, tolerance=1e-6)


@pytest.mark.parametrize(("part", "name"), [("attention", "LlamaAttention"), ("decoder", "LlamaDecoderLayer")])
def test_state_dict_has_the_keys_of_transformers(part: str, name: str) -> None:
    pytest.importorskip("transformers")
    native, _ = make(part, small(), "native")
    hf, _ = make(part, small(), "hf")
    assert type(hf.hf).__name__ == name
    assert list(native.state_dict()) == list(hf.get_submodule("hf").state_dict())


@every_pair(masked=MASKED_PARTS, attention=("eager", "sdpa"), source=SOURCES)
def test_compiles_as_one_graph(masked: tuple[str, bool], attention: str, source: str) -> None:
    part, mask = masked
    config = small(attention=attention, kv_heads=2, layers=1)
    expected = values(*make(part, config, source, mask), torch.float32)
    module, inputs = make(part, config, source, mask)
    torch._dynamo.reset()
    module.compile(backend="aot_eager", fullgraph=True)
    assert_close(values(module, inputs, torch.float32), expected, tolerance=1e-5)


@every_attention
def test_no_position_sees_the_next(attention: str) -> None:
    module, (hidden,) = make("decoder", small(attention=attention), "native")
    changed = hidden.clone()
    changed[:, 8:] += 1
    torch.testing.assert_close(module(changed)[:, :8], module(hidden)[:, :8])


@every_attention
def test_padding_changes_nothing_before_it(attention: str) -> None:
    module, (tokens, padding) = make("model", small(attention=attention), "native", mask=True)
    real = padding.bool()
    torch.testing.assert_close(module(tokens, padding)[real], module(tokens)[real])
    assert padding.sum(1).tolist() == [8, 16]


@every_source
@pytest.mark.parametrize("part", PARTS)
def test_output_and_inputs(part: str, source: str) -> None:
    module, inputs = make(part, small(), source)
    shape, dtype = ((2, 16), torch.int64) if part == "model" else ((2, 16, 64), torch.float32)
    assert [(tuple(tensor.shape), tensor.dtype) for tensor in inputs] == [(shape, dtype)]
    assert module(*inputs).shape == (2, 16, 64)


@every_part
def test_a_seed_gives_the_same_weights_and_inputs_to_both_sources(part: str, mask: bool) -> None:
    native, native_inputs = make(part, small(), "native", mask)
    hf, hf_inputs = make(part, small(), "hf", mask)
    torch.testing.assert_close(dict(native.state_dict()), dict(hf.get_submodule("hf").state_dict()), rtol=0, atol=0)
    torch.testing.assert_close(native_inputs, hf_inputs, rtol=0, atol=0)


def test_another_seed_gives_other_weights_and_inputs() -> None:
    (one, (x,)), (other, (y,)) = (build("decoder", small(), seq=4, seed=seed) for seed in (0, 1))
    for name, weight in one.state_dict().items():
        assert not torch.equal(weight, other.state_dict()[name]), name
    assert not torch.equal(x, y)


@every_source
def test_leaves_the_random_generator_alone(source: str) -> None:
    before = torch.random.get_rng_state()
    make("model", small(), source, mask=True)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (
            {"hidden": 60, "heads": 8},
            "hidden=60 is not divisible by heads=8: take a multiple of 16, such as hidden=64",
        ),
        (
            {"hidden": 40, "heads": 8},
            (
                "hidden=40 / heads=8 gives heads of odd size 5, which rotary embedding cannot halve: "
                "take a multiple of 16, such as hidden=48"
            ),
        ),
        ({"heads": 8, "kv_heads": 3}, "heads=8 is not divisible by kv_heads=3: take one of 1, 2, 4, 8"),
        ({"heads": 0}, "heads=0 is not positive: give a number above 0"),
        ({"kv_heads": 0}, "kv_heads=0 is not positive: give a number above 0"),
        ({"layers": -1}, "layers=-1 is not positive: give a number above 0"),
        ({"attention": "flash"}, "attention='flash' is unknown: choose one of eager, sdpa"),
    ],
)
def test_config_errors(sizes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        LlamaConfig(**sizes)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"part": "head"}, "part 'head' is unknown: choose one of attention, decoder, model"),
        ({"source": "timm"}, "source 'timm' is unknown: choose one of native, hf"),
        ({"batch": 0}, "batch=0 and seq=1024 have to be 1 or more"),
        ({"mask": True}, "part 'decoder' takes no padding mask: leave mask out, or choose part 'model'"),
    ],
)
def test_build_errors(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        build(**{"part": "decoder", "config": small(), **arguments})
    assert str(caught.value) == message


def test_says_how_to_get_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers.models.llama.modeling_llama", None)
    with pytest.raises(UsageError) as caught:
        build("attention", small(), source="hf")
    assert str(caught.value) == "--source hf needs transformers: pip install 'dort-compare[hf]'"
