"""What the rows of the operator tests cannot tell of functions element by element: signs of zeros, last places."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from op_calls import Call
from torch import Tensor

from dort_compare import DebugBackend
from dort_compare.errors import UnsupportedGraphError
from dort_compare.lowering.builder import Builder
from dort_compare.runtime import newest_opset

aten = torch.ops.aten
FLOAT32_AND_64 = (torch.float32, torch.float64)
HALF = (torch.float16, torch.bfloat16)


def on_onnx_runtime(target: Any, *args: Any, **kwargs: Any) -> Tensor:
    (result,) = Call(target, args, kwargs).on_onnx_runtime(newest_opset())
    return result


ODD = (
    *("abs", "asin", "asinh", "atan", "atanh", "ceil", "erf", "erfinv", "expm1", "floor", "frac", "log1p", "neg"),
    *("reciprocal", "round", "sign", "sin", "sinh", "sqrt", "tanh", "trunc", "hardtanh", "relu", "silu", "elu"),
)


@pytest.mark.parametrize("dtype", FLOAT32_AND_64)
@pytest.mark.parametrize("name", ODD)
def test_zero_keeps_its_sign(name: str, dtype: torch.dtype) -> None:
    x = torch.tensor([0.0, -0.0, -0.2, 0.2, -torch.inf, torch.inf], dtype=dtype)
    target = getattr(aten, name).default
    assert_same_signs(on_onnx_runtime(target, x), target(x))


@pytest.mark.parametrize(
    ("target", "options"),
    [
        (aten.atan2.default, {}),
        (aten.copysign.Tensor, {}),
        (aten.div.Tensor, {}),
        (aten.div.Tensor_mode, {"rounding_mode": "floor"}),
        (aten.div.Tensor_mode, {"rounding_mode": "trunc"}),
        (aten.fmod.Tensor, {}),
        (aten.pow.Tensor_Tensor, {}),
        (aten.remainder.Tensor, {}),
    ],
    ids=str,
)
def test_zero_keeps_its_sign_between_two(target: Any, options: dict[str, str]) -> None:
    x = torch.tensor([0.0, -0.0, -0.2, 0.2, -3.0, 3.0, -torch.inf, torch.inf])
    y = x.reshape(-1, 1)
    assert_same_signs(on_onnx_runtime(target, x, y, **options), target(x, y, **options))


@pytest.mark.parametrize("exponent", [0.5, -0.5])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_roots_of_minus_infinity_and_zero_are_torchs(dtype: torch.dtype, exponent: float) -> None:
    x = torch.tensor([-torch.inf, -0.0, 0.0, torch.inf, 4.0, -4.0] * 4, dtype=dtype)
    target = aten.pow.Tensor_Scalar
    torch.testing.assert_close(on_onnx_runtime(target, x, exponent), target(x, exponent), equal_nan=True)
    assert_same_signs(on_onnx_runtime(target, x, exponent), target(x, exponent))


def assert_same_signs(actual: Tensor, expected: Tensor) -> None:
    assert torch.equal(actual.isnan(), expected.isnan())
    assert torch.equal(actual.signbit()[~actual.isnan()], expected.signbit()[~expected.isnan()])


@pytest.mark.parametrize("target", [aten._softmax.default, aten._log_softmax.default], ids=str)
@pytest.mark.parametrize("x", [0.0, -0.0, 1.5, 1e-40, torch.inf, -torch.inf, torch.nan])
def test_the_softmax_of_a_single_number(target: Any, x: float) -> None:
    number = torch.tensor(x)
    torch.testing.assert_close(on_onnx_runtime(target, number, 0, False), target(number, 0, False), equal_nan=True)


RANGES = {
    "acos": (-0.999, 0.999),
    "acosh": (1.1, 1e6),
    "asin": (-1, 1),
    "asinh": (-1e6, 1e6),
    "atan": (-1e6, 1e6),
    "atanh": (-0.999, 0.999),
    "cosh": (-80, 80),
    "erfc": (-5, 9),
    "erfinv": (-0.999, 0.999),
    "exp2": (-100, 100),
    "expm1": (-80, 80),
    "i0": (-80, 80),
    "log10": (0, 1e30),
    "log1p": (-0.999, 1e30),
    "log2": (0, 1e30),
    "mish": (-80, 80),
    "sigmoid": (-80, 80),
    "silu": (-80, 80),
    "sinh": (-80, 80),
    "softplus": (-80, 80),
    "special_i1": (-80, 80),
    "special_ndtri": (0, 1),
}


@pytest.mark.parametrize("name", RANGES)
def test_every_element_is_accurate(name: str) -> None:
    """Within 8 units of its own last place in float32, however small it is."""
    low, high = RANGES[name]
    torch.manual_seed(0)
    x = torch.cat(
        [torch.empty(2000).uniform_(max(low, -9), min(high, 9)), torch.exp2(torch.empty(2000).uniform_(-40, 40))]
    )
    x = torch.cat([x, -x])
    x = x[(x > low) & (x < high)]
    target = getattr(aten, name).default
    exact = target(x.double())
    normal = exact.abs() > torch.finfo(torch.float32).tiny
    error = ((on_onnx_runtime(target, x).double() - exact) / exact).abs()[normal]
    assert error.max().item() < 8 * torch.finfo(torch.float32).eps, x[normal][error.argmax()]


@pytest.mark.parametrize("dtype", FLOAT32_AND_64)
def test_the_logarithm_of_gamma_is_accurate_around_its_zeros(dtype: torch.dtype) -> None:
    """They are 1 and 2, where a series for large numbers leaves what those are rounded by."""
    near = torch.exp2(torch.linspace(-20, -2, 1000))
    x = torch.cat([1 + near, 1 - near, 2 + near, 2 - near, torch.linspace(0.5, 12, 4000)]).to(dtype)
    exact = torch.lgamma(x.double())
    error = ((on_onnx_runtime(aten.lgamma.default, x).double() - exact) / exact).abs().nan_to_num(0)
    assert error.max().item() < 8 * torch.finfo(dtype).eps, x[error.argmax()]


@pytest.mark.parametrize("dtype", FLOAT32_AND_64)
def test_logarithms_of_powers_are_integers(dtype: torch.dtype) -> None:
    exponents = torch.arange(-30, 31)
    for target, base in ((aten.log2.default, 2.0), (aten.log10.default, 10.0)):
        powers = torch.tensor([base**n for n in exponents.tolist()], dtype=dtype)
        expected = target(powers.double()) if dtype == torch.float64 else exponents
        assert torch.equal(on_onnx_runtime(target, powers), expected.to(dtype))


def test_what_would_be_wrong_is_refused() -> None:
    integers = torch.tensor([3, 5])
    refused = {
        "ONNX Runtime's saturate": Call(aten.pow.Tensor_Tensor, (integers, integers), {}),
        "powers of 3 wrap around": Call(aten.pow.Scalar, (3, integers), {}),
        "draws random numbers": Call(aten.rrelu_with_noise.default, (torch.ones(2), torch.ones(2), 0.1, 0.3, True), {}),
        "not of one size": Call(aten.view.dtype, (torch.ones(2), torch.int16), {}),
        "no Tan in float64": Call(aten.tan.default, (torch.ones(2, dtype=torch.float64),), {}),
    }
    for reason, call in refused.items():
        with pytest.raises(UnsupportedGraphError, match=reason):
            call.lowered(newest_opset())


CANCELLING: dict[str, tuple[Any, Any]] = {
    "x - 0.3": (aten.sub.Tensor, lambda x: (x, 0.3)),
    "x - 0.3, a Scalar": (aten.sub.Scalar, lambda x: (x, 0.3)),
    "x + -0.3": (aten.add.Tensor, lambda x: (x, -0.3)),
    "-0.3 + x": (aten.add.Tensor, lambda x: (-0.3, x)),
    "0.3 - x": (aten.rsub.Scalar, lambda x: (x, 0.3)),
}
"""Where a half precision's 0.3 is left of 0.3, rounded to it or not."""


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("size", [1, 7, 100])
@pytest.mark.parametrize("case", CANCELLING)
def test_a_number_in_a_sum_is_rounded_to_half_precision_first(case: str, size: int, dtype: torch.dtype) -> None:
    target, arguments = CANCELLING[case]
    args = arguments(torch.full((size,), 0.3, dtype=dtype))
    assert target(*args).eq(0).all()
    assert torch.equal(on_onnx_runtime(target, *args), target(*args))


WITH_ALPHA: dict[str, tuple[Any, Any]] = {
    "add": (aten.add.Tensor, lambda x, y: (x, y, -0.3)),
    "sub": (aten.sub.Tensor, lambda x, y: (x, y, 0.3)),
    "rsub": (aten.rsub.Tensor, lambda x, y: (y, x, 0.3)),
    "add, of a number": (aten.add.Tensor, lambda x, _: (x, 1.1, -0.3)),
    "add, to a number": (aten.add.Tensor, lambda x, _: (1.1, x, -0.3)),
    "sub, of a 0-d tensor": (aten.sub.Tensor, lambda x, _: (x, torch.tensor(1.1), 0.3)),
}


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("case", WITH_ALPHA)
def test_alpha_is_rounded_to_half_precision_first(case: str, dtype: torch.dtype) -> None:
    """As in whole vectors, of 64 elements; behind the last one torch rounds the product too."""
    target, arguments = WITH_ALPHA[case]
    y = torch.randn(64, generator=torch.Generator().manual_seed(0)).to(dtype)
    x, y, alpha = arguments((0.3 * y).to(dtype), y)
    expected = target(x, y, alpha=alpha)
    assert torch.equal(on_onnx_runtime(target, x, y, alpha=alpha), expected)


def test_on_cuda_a_number_in_a_sum_is_not_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Builder, "on_cuda", True)
    x = torch.full((4,), 0.3, dtype=torch.bfloat16)
    left = (x.float() - 0.3).bfloat16()
    assert left.ne(0).all()
    assert torch.equal(on_onnx_runtime(aten.sub.Tensor, x, 0.3), left)
    assert torch.equal(on_onnx_runtime(aten.sub.Tensor, x, torch.ones_like(x), alpha=0.3), left)


EDGES = (0.1, 0.3, 0.7, -0.7, 6.1, 1e-3)
"""Which half precision does not hold."""


def at_edges(dtype: torch.dtype) -> Tensor:
    """Each edge as it is rounded, and the numbers below and above it; half precision's bits count like its numbers."""
    bits = torch.tensor(EDGES, dtype=dtype).view(torch.int16)
    return torch.stack([bits - 1, bits, bits + 1]).view(dtype)


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("edge", EDGES)
def test_a_threshold_is_not_rounded_to_half_precision(edge: float, dtype: torch.dtype) -> None:
    x = at_edges(dtype)
    assert torch.equal(on_onnx_runtime(aten.threshold.default, x, edge, 0.9), aten.threshold(x, edge, 0.9))
    for target, edges in (
        (aten.threshold_backward.default, (edge,)),
        (aten.hardtanh_backward.default, (edge, 9)),
        (aten.hardtanh_backward.default, (-9, edge)),
    ):
        ones = torch.ones_like(x)
        assert torch.equal(on_onnx_runtime(target, ones, x, *edges), target(ones, x, *edges))


def test_on_cuda_a_threshold_is_rounded_to_half_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Builder, "on_cuda", True)
    x = torch.tensor([0.1], dtype=torch.bfloat16)  # above 0.1
    assert on_onnx_runtime(aten.threshold.default, x, 0.1, 7).item() == 7
    assert on_onnx_runtime(aten.threshold_backward.default, torch.ones_like(x), x, 0.1).item() == 0


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("eps", [1e-6, 1e-3, 0.01, 0.1])
def test_the_ends_of_a_logit_are_rounded_to_half_precision(eps: float, dtype: torch.dtype) -> None:
    """1 - 1e-3 is 1 in bfloat16."""
    lowest = torch.tensor(eps, dtype=dtype)
    x = torch.stack(
        [lowest / 2, lowest, lowest * 2, 1 - lowest * 2, 1 - lowest, 1 - lowest / 2, torch.ones_like(lowest)]
    )
    ones = torch.ones_like(x)
    torch.testing.assert_close(on_onnx_runtime(aten.logit.default, x, eps), aten.logit(x, eps))
    gradient = on_onnx_runtime(aten.logit_backward.default, ones, x, eps)
    torch.testing.assert_close(gradient, aten.logit_backward(ones, x, eps))


@pytest.mark.parametrize("dtype", [*HALF, torch.float32, torch.float64])
@pytest.mark.parametrize("eps", [None, -1e-3, -1.0, 0.0, 0.5, 0.7])
def test_a_negative_eps_of_a_logit_is_none(eps: float | None, dtype: torch.dtype) -> None:
    x = torch.tensor([-torch.inf, -1.5, -0.2, 0.25, 0.6, 1.0, 1.2, torch.inf], dtype=dtype)
    torch.testing.assert_close(on_onnx_runtime(aten.logit.default, x, eps), aten.logit(x, eps), equal_nan=True)
    gradient = on_onnx_runtime(aten.logit_backward.default, torch.ones_like(x), x, eps)
    torch.testing.assert_close(gradient, aten.logit_backward(torch.ones_like(x), x, eps), equal_nan=True)


def test_on_cuda_the_ends_of_a_logit_are_not_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Builder, "on_cuda", True)
    x = torch.ones(1, dtype=torch.bfloat16)
    assert on_onnx_runtime(aten.logit.default, x, 1e-3).item() == torch.tensor(0.999).logit().bfloat16().item()
    assert on_onnx_runtime(aten.logit_backward.default, x, x, 1e-3).item() == 0
    below = torch.tensor([1e-3], dtype=torch.bfloat16)  # 0.00099945
    assert on_onnx_runtime(aten.logit_backward.default, x, below, 1e-3).item() == 0


def test_a_threshold_of_bytes_wraps_around() -> None:
    x = torch.tensor([0, 3, 255], dtype=torch.uint8)
    assert torch.equal(on_onnx_runtime(aten.threshold.default, x, -1, 7), aten.threshold(x, -1, 7))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int32])
def test_a_clamp_behind_a_relu(dtype: torch.dtype) -> None:
    """ONNX Runtime makes one Clip of the two, which it cannot in float64."""
    torch._dynamo.reset()
    x = (torch.randn(20, generator=torch.Generator().manual_seed(0)) * 8).to(dtype)
    compiled = torch.compile(lambda x: x.relu().clamp(1, 6), backend=DebugBackend(fallback=False))
    assert torch.equal(compiled(x), x.relu().clamp(1, 6))


def test_parameters_of_activations_may_be_symbolic() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        n = x.shape[0]
        return torch.nn.functional.softplus(x, 1, n / 2), torch.nn.functional.leaky_relu(x, 1 / n)

    torch._dynamo.reset()
    x = torch.linspace(-5, 5, 7)
    compiled = torch.compile(function, backend=DebugBackend(fallback=False), dynamic=True)
    torch.testing.assert_close(compiled(x), function(x))


@pytest.mark.parametrize("name", ["remainder", "fmod", "floor_divide"])
def test_nothing_is_divided_by_a_number_that_is_zero(name: str) -> None:
    target, x = getattr(aten, name).Scalar, torch.arange(0).view(0, 1)
    assert torch.equal(on_onnx_runtime(target, x, 0), target(x, 0))
    tensor = aten.floor_divide.default if name == "floor_divide" else getattr(aten, name).Tensor
    assert torch.equal(on_onnx_runtime(tensor, x, torch.tensor([0])), tensor(x, torch.tensor([0])))


@pytest.mark.parametrize("is_result", [False, True])
def test_the_gradient_of_elu_is_nan_at_nan(is_result: bool) -> None:
    """As in whole vectors, of 64 elements; behind the last one torch passes the incoming gradient on."""
    x = torch.linspace(-2, 2, 64).where(torch.arange(64) != 5, torch.nan)
    args = (torch.full((64,), 3.0), 0.7, 1.1, 0.9, is_result, x)
    expected = aten.elu_backward.default(*args)
    assert expected.isnan().sum() == 1
    torch.testing.assert_close(on_onnx_runtime(aten.elu_backward.default, *args), expected, equal_nan=True)
