"""Complex arithmetic and Fourier transforms in ONNX Runtime, in real and imaginary parts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from dort_compare import DebugBackend, compare
from dort_compare.lowering import registry
from dort_compare.offline import check

aten = torch.ops.aten
Function = Callable[..., Any]


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


def real(*shape: int) -> Tensor:
    return torch.randn(shape, requires_grad=True)


def cfloat(*shape: int, dtype: torch.dtype = torch.complex64) -> Tensor:
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def rotary(queries: Tensor, turns: Tensor) -> Tensor:
    """As in the code that came with Llama."""
    pairs = torch.view_as_complex(queries.float().reshape(*queries.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns[:, None]).flatten(3).type_as(queries)


def spectral_convolution(x: Tensor, weight: Tensor) -> Tensor:
    """As in a Fourier neural operator."""
    spectrum = torch.fft.rfft2(x)
    out = torch.zeros(2, 3, 12, 7, dtype=torch.cfloat)
    out[:, :, :4, :4] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, :4, :4], weight)
    out[:, :, -4:, :4] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, -4:, :4], weight)
    return torch.fft.irfft2(out, s=(12, 12))


def spectrogram(x: Tensor) -> Tensor:
    return torch.stft(x, 32, 8, window=torch.hann_window(32), return_complex=True)


def inverted(x: Tensor) -> Tensor:
    return torch.istft(spectrogram(x) * 0.5, 32, 8, window=torch.hann_window(32))


def elementary(z: Tensor) -> tuple[Tensor, ...]:
    trigonometric = (z.sin(), z.cos(), z.tan(), z.sinh(), z.cosh(), z.tanh(), z.sigmoid())
    return *trigonometric, z.sqrt(), z.rsqrt(), z.exp(), z.exp2(), z.log(), z.log2(), z.log10()


def powers(z: Tensor) -> tuple[Tensor, ...]:
    return *(z**n for n in (-3, -2, -1, -0.5, 0, 0.5, 1, 2, 3, 2.5, 1 - 2j)), 2**z, (1j) ** z, (-2) ** z


def filled(z: Tensor) -> tuple[Tensor, ...]:
    likes = z.new_ones(2), z.new_full((2,), 2j), torch.ones_like(z), torch.full_like(z.real, 1j, dtype=z.dtype)
    written = z.index_fill(0, INTEGERS[0], 1j), z.scatter(1, INTEGERS % 3, 2j), torch.fill(z, 3j)
    masked = z.masked_fill(z.real > 0, torch.tensor(1j)), z.masked_fill(z.real > 0, 2)
    return *likes, *written, *masked, torch.ones(3, dtype=z.dtype)


def asked(z: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    truths = z.logical_not(), z.logical_and(x), x.logical_or(z), z.logical_xor(z), z.any(), z.all(1), z.any((0, 1))
    return *truths, z.nonzero(), z.isnan(), z.isinf(), z.isfinite(), x == z, z != x, z == 1


def rearranged(z: Tensor) -> tuple[Tensor, ...]:
    again = z.clone()
    again[1] = z[0]
    return (
        *(z.unsqueeze(1).expand(3, 2, 4), z[:, :1].squeeze(1), z.diagonal(), z.tril(), z.triu(1), z.repeat(2, 1)),
        *(z.index_select(0, INTEGERS[0]), z.gather(1, INTEGERS % 3), z.take(INTEGERS), z[INTEGERS % 3, 1], again),
        *(
            z.index_put((INTEGERS[0],), z[:2], accumulate=True),
            z.scatter_add(1, INTEGERS % 3, z[:, :2]),
            z.flip(0),
            z.roll(1, 0),
        ),
        *(z.index_add(0, INTEGERS[0], z[:2]), z.index_copy(0, INTEGERS[0], z[:2]), z.put(INTEGERS, z[:, :2])),
        *(z.unfold(1, 2, 1), torch.diag_embed(z), z.cumsum(0), z.sum(), z.mean(1)),
        *(F.pad(z[None], (1, 2), "reflect"), F.pad(z[None], (1, 2), "replicate"), F.unfold(z[None, None], 2)),
    )


INTEGERS = torch.arange(6).view(3, 2)
CASES: dict[str, tuple[Function, tuple[Tensor, ...]]] = {
    "rotary embedding": (rotary, (real(2, 5, 3, 8), torch.polar(torch.ones(5, 4), torch.randn(5, 4)))),
    "spectral convolution": (spectral_convolution, (real(2, 3, 12, 12), cfloat(3, 3, 4, 4))),
    "spectrogram": (lambda x: spectrogram(x).abs() ** 2, (real(2, 100),)),
    "spectrogram inverted": (inverted, (real(2, 100),)),
    "FNet": (lambda x: torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real, (real(2, 6, 8),)),
    "long convolution": (
        lambda x, k: torch.fft.irfft(torch.fft.rfft(x, n=60) * torch.fft.rfft(k, n=60), n=60)[..., :30],
        (real(2, 4, 30), real(4, 30)),
    ),
    "autocorrelation": (lambda x: torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(x).conj()), (real(2, 24),)),
    "shifted": (lambda x: torch.fft.fftshift(torch.fft.fft2(x, norm="ortho")).abs(), (real(2, 6, 8),)),
    "Hermitian": (lambda z: torch.fft.hfft(z), (cfloat(3, 12),)),
    "complex128": (lambda z: torch.fft.ifft(z * z).abs(), (cfloat(3, 8, dtype=torch.complex128),)),
    "sums and products": (lambda z, w: z * w + z - w * 2 + (1 - 2j) * z, (cfloat(3, 4), cfloat(3, 4))),
    "with real numbers": (lambda z, x: z * x + x - z / 3 + (x - z), (cfloat(3, 4), real(4))),
    "with wider real numbers": (
        lambda z, x: (z + x, x - z, torch.complex(x, z.real)),
        (cfloat(3, 1).detach(), real(1, 4).detach()),
    ),
    "with factors": (
        lambda z, x: (torch.add(z, x, alpha=2), torch.sub(x, z, alpha=2j), torch.addmm(z, z, z, beta=2, alpha=1j)),
        (cfloat(4, 4), real(4)),
    ),
    "with other dtypes": (lambda z, x: z * x, (cfloat(3, 4), torch.randn(4, dtype=torch.float64))),
    "quotients": (lambda z, w: z / w + 1 / w, (cfloat(3, 4), cfloat(3, 4))),
    "magnitude and angle": (lambda z: (z.abs(), z.angle(), z.sgn()), (cfloat(3, 4),)),
    "magnitude alone": (lambda z: z.abs(), (cfloat(3, 4),)),
    "compared alone": (lambda z, w: (z == w, z != 2), (torch.tensor([2j, 2, 3j]), torch.tensor([2j, 2j, 3]))),
    "polar": (lambda x, y: torch.polar(x.abs(), y).sum(0), (real(3, 4), real(3, 4))),
    "exponential": (lambda z: (z * 1j).exp() + z.log(), (cfloat(3, 4),)),
    "matrices": (lambda z, w: (z @ w).mH @ z, (cfloat(3, 4), cfloat(4, 4))),
    "linear layer": (F.linear, (cfloat(3, 4), cfloat(5, 4), cfloat(5))),
    "parts": (lambda z: (z.real * 2, z.imag + z.real, z.conj(), (z * z.conj()).real), (cfloat(3, 4),)),
    "moved": (lambda z: z.mT.conj().reshape(2, 6)[:, 1:].flip(0).roll(1, 1), (cfloat(3, 4),)),
    "joined": (lambda z, x: torch.cat([z, z.exp(), torch.complex(x, x)], 1), (cfloat(3, 4), real(3, 4))),
    "split": (lambda z: z.split(2, 1)[1] * z.chunk(2, 1)[0], (cfloat(3, 4),)),
    "chosen": (lambda z, w: torch.where(z.real > 0, z, w)[torch.tensor([0, 2]), 1:], (cfloat(3, 4), cfloat(3, 4))),
    "reduced": (lambda z: (z.mean(), z.sum(0), z.cumsum(1), (z**2).sum().real), (cfloat(3, 4),)),
    "compared": (
        lambda z, w: ((z == w), (z != 2), z * w),
        (torch.tensor([1 + 2j, 2, 3j]), torch.tensor([1 + 2j, 2j, 3])),
    ),
    "norms": (lambda z: (torch.linalg.vector_norm(z), z.norm(dim=1)), (cfloat(3, 4),)),
    "of integers": (lambda n: (n.sum(0, dtype=torch.cfloat), n.cumsum(1, dtype=torch.cfloat)), (INTEGERS,)),
    "real numbers written": (
        lambda z, x: (
            torch.slice_scatter(z, x, 1, 1, 3),
            torch.select_scatter(z, x[:, 0], 1, 0),
            torch.diagonal_scatter(z, x[:, 0]),
        ),
        (cfloat(3, 4).detach(), real(3, 2).detach()),
    ),
    "real results alone": (lambda z: (z.abs(), z.angle(), z == 0), (cfloat(3, 4).detach(),)),
    "truth": (lambda z: z.bool(), (torch.tensor([0, 1, 1j]),)),
    "padded": (lambda z: F.pad(z, (1, 2)) * 1j, (cfloat(3, 4),)),
    "written": (lambda z: z.clone().mul_(2j).add_(1), (cfloat(3, 4),)),
    "constants": (lambda z: z + torch.eye(3, dtype=torch.cfloat) * 2j + torch.full((3, 3), 1 - 1j), (cfloat(3, 3),)),
    "elementary functions": (elementary, (cfloat(3, 4),)),
    "powers": (powers, (cfloat(3, 4),)),
    "filled": (filled, (cfloat(3, 4),)),
    "asked": (asked, (torch.tensor([[0, 1, 1j], [2, 0, float("nan")]]), torch.tensor([[0, 1.0, 1], [2, 3, 0]]))),
    "rearranged": (rearranged, (cfloat(3, 4),)),
    "spread": (lambda z: (z.var(), z.std(1), z.var(0, correction=0)), (cfloat(3, 4),)),
    "with quotients": (
        lambda z, w: (torch.addcmul(z, z, w, value=2j), torch.addcdiv(z, w, z, value=0.5), torch.rsub(z, w, alpha=3)),
        (cfloat(3, 4), cfloat(3, 4)),
    ),
    "transposed": (lambda z, w: torch.einsum("bixy,ioxy->boxy", z, w), (cfloat(2, 3, 4, 5), cfloat(3, 6, 4, 5))),
    "returned as it is transformed": (lambda x: torch.fft.fft(x, dim=1), (real(2, 6, 5),)),
    "conjugated inputs": (lambda z: torch.fft.fft(z) * z, (cfloat(3, 8).detach().conj(),)),
    "transposed inputs": (lambda z: torch.fft.fft(z) * z, (cfloat(8, 3).detach().t(),)),
}


APART = ("FNet", "parts", "moved", "reduced")


@pytest.mark.parametrize("name", CASES)
def test_all_of_it_runs_in_onnx_runtime_and_agrees(name: str) -> None:
    function, inputs = CASES[name]
    has_gradient = any(each.requires_grad for each in inputs)
    report = compare(Of(function), inputs, backward=has_gradient)
    assert report.verdict == "agree", str(report)
    assert not report.fallbacks
    unaligned = [row for row in report.rows if row.status == "unaligned"]
    assert all(row.dtype.startswith("complex") or "memory" in row.reason for row in unaligned)
    assert any(row.status == "ok" for row in report.rows)


@pytest.mark.parametrize("name", CASES)
def test_the_fast_backend_returns_what_eager_does(name: str) -> None:
    """A part that is returned is one of a complex tensor in eager torch, with room for the other in memory."""
    function, inputs = CASES[name]
    expected, got = function(*inputs), torch.compile(function, backend="dort")(*inputs)
    assert_close(got, expected, check_stride=name not in APART, equal_nan=True)


def test_the_sides_of_a_branch_cut_are_those_of_torch() -> None:
    """Which 0 the imaginary part is decides, and what a real operand, as a + 0i, makes of it."""

    def sides(z: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        sums = z + x, z - x, x - z, z + 1, z - 9, 1 - z, z[:, None] + x, x + 1j, x - 0j
        return tuple(each.sqrt() for each in (*sums, z * -1, z * x, x[:, None] * z, x * (1 + 0j)))

    z = torch.complex(torch.tensor([4.0, -4, 4, -4, 0]), torch.tensor([0.0, 0, -0.0, -0.0, 1]))
    x = torch.tensor([1.0, -1, 5, 3, 0.5])
    for inputs in ((z, x), (z[:1], x), (z[2:3], x[:1])):
        got = torch.compile(sides, backend="dort", options={"fallback": False}, dynamic=False)(*inputs)
        assert_close(got, sides(*inputs))


def test_operands_are_computed_with_in_the_dtype_of_the_result() -> None:
    def mixed(z: Tensor, w: Tensor, n: Tensor) -> tuple[Tensor, ...]:
        sums = z.add(w, alpha=3), z.sub(w, alpha=0.1), torch.rsub(w, z, alpha=3), z.add(n, alpha=0.1)
        return *sums, z / w, w / z, w / z.real, torch.addcmul(z, w, w, value=3)

    inputs = torch.randn(3, 4, dtype=torch.cdouble), cfloat(3, 4), INTEGERS.repeat(1, 2) + 1
    assert_close(torch.compile(mixed, backend="dort")(*inputs), mixed(*inputs), rtol=1e-12, atol=1e-12)


def test_what_is_written_to_booleans_is_whether_it_is_0() -> None:
    def written(z: Tensor) -> tuple[Tensor, ...]:
        truths, numbers = torch.ones(2, 3, dtype=torch.bool), torch.ones(2, 3)
        return truths.copy_(z), truths.new_zeros(3).copy_(z[0]), numbers.copy_(z)

    z = torch.tensor([[0j, 1j, 1], [2j, 0, 1j]])
    assert_close(torch.compile(written, backend="dort", options={"fallback": False})(z), written(z))


def test_the_fast_backend_trains() -> None:
    torch.manual_seed(0)
    x, weight = real(2, 3, 12, 12), cfloat(3, 3, 4, 4)
    compiled = torch.compile(spectral_convolution, backend="dort", options={"fallback": False})
    functions = (spectral_convolution, compiled)
    expected, got = (torch.autograd.grad(each(x, weight).square().sum(), (x, weight)) for each in functions)
    assert_close(got, expected)


def test_what_has_no_rule_alone_runs_in_torch() -> None:
    report = compare(Of(lambda z: ((z * 2).acos() * 3).abs()), (cfloat(3, 4),), backward=True)
    assert report.verdict == "agree"
    assert {each.target for each in report.fallbacks} == {"aten.acos.default"}


def test_what_a_rule_refuses_alone_runs_in_torch() -> None:
    """The parts of an operand that it asked for serve what comes after."""
    report = compare(Of(lambda z: 0**z * z), (cfloat(3, 4),))
    assert report.verdict == "agree"
    assert {each.target for each in report.fallbacks} == {"aten.pow.Scalar"}


def test_a_transform_with_a_large_prime_factor_alone_runs_in_torch() -> None:
    report = compare(Of(lambda x: torch.fft.rfft(x * 2).abs() + 1), (torch.randn(2, 1031),))
    assert report.verdict == "agree"
    assert [(each.target, each.reason) for each in report.fallbacks] == [
        ("aten._fft_r2c.default", "a transform of length 1031, which has too large a prime factor")
    ]


def test_sizes_beside_a_transform_may_be_symbolic() -> None:
    backend = DebugBackend(fallback=False)
    compiled = torch.compile(lambda x: torch.fft.rfft(x * 2).abs(), backend=backend, dynamic=True)
    for batch in (2, 5):
        x = torch.randn(batch, 3, 100)
        torch._dynamo.mark_static(x, 2)
        assert_close(compiled(x), torch.fft.rfft(x * 2).abs())


def test_complex_tensors_of_symbolic_sizes_need_no_other_graph() -> None:
    """Neither where real numbers are broadcast to what they are added to, nor where a size is an argument."""
    function = lambda z, x: (z[:, None] + x)[: z.shape[0] // 2].reshape(-1).abs()  # noqa: E731
    backend = DebugBackend(fallback=False)
    compiled = torch.compile(function, backend=backend, dynamic=True)
    for rows in (4, 6, 10):
        inputs = (cfloat(rows).detach(), torch.randn(rows + 1))
        assert_close(compiled(*inputs), function(*inputs))
    assert len(backend.graphs) == 1


@pytest.mark.parametrize(
    ("scale", "dtype"), [(1e30, torch.complex64), (1e-30, torch.complex64), (1e200, torch.complex128)]
)
def test_quotients_and_magnitudes_stay_in_range(scale: float, dtype: torch.dtype) -> None:
    z, w = (torch.randn(50, dtype=dtype) * scale for _ in range(2))
    z[0] = 0
    function = lambda z, w: (z / w, z.abs(), z.sgn(), z.sgn().abs())  # noqa: E731
    assert_close(torch.compile(function, backend="dort", options={"fallback": False})(z, w), function(z, w))


def test_logarithms_keep_their_digits_about_1() -> None:
    z = 1 + torch.randn(50, dtype=torch.complex64, generator=torch.Generator().manual_seed(0)) * 1e-4
    got = torch.compile(lambda z: (z.log(), z.log2(), z.log10()), backend="dort", options={"fallback": False})(z)
    for result, function in zip(got, (torch.log, torch.log2, torch.log10), strict=True):
        exact = function(z.to(torch.complex128))
        assert ((result - exact).abs() <= 1e-6 * exact.abs()).all()


def test_roots_of_what_is_real_are_on_eagers_side() -> None:
    z = torch.tensor([complex(a, b) for a in (4.0, -4.0, 0.0) for b in (0.0, -0.0)], dtype=torch.complex64)
    got = torch.compile(torch.sqrt, backend="dort", options={"fallback": False})(z)
    assert_close(torch.view_as_real(got), torch.view_as_real(z.sqrt()))


@pytest.mark.parametrize("n", [2, 6, 30, 64, 96, 134, 192, 514, 1000, 1454])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_middle_of_the_transform_of_reals_is_real(n: int, dtype: torch.dtype) -> None:
    """Noise there would put it on either side of the branch cut."""
    x = torch.randn(50, n, dtype=dtype, generator=torch.Generator().manual_seed(0))
    for function in (lambda x: torch.fft.rfft(x)[:, -1], lambda x: torch.fft.fft(x)[:, n // 2]):
        middle = torch.compile(function, backend="dort", options={"fallback": False}, dynamic=False)(x)
        assert not middle.imag.any()
        assert not middle.imag.signbit().any()
        assert_close(middle.angle(), function(x).angle())


def test_a_transform_that_is_wrong_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    right = registry.registered()[aten._fft_r2c.default]

    def conjugated(op: Any, x: ir.Value, *args: Any) -> ir.Value:
        return op.Mul(right(op, x, *args), op.const([1.0, -1.0], torch.float32))

    monkeypatch.setitem(registry._TABLE, aten._fft_r2c.default, conjugated)
    x = torch.randn(2, 12)
    report = compare(Of(lambda x: torch.fft.irfft((torch.fft.rfft(x.sin()) * 2j).exp())), (x,))
    cause = report.first_divergence
    assert cause is not None
    assert (cause.target, *cause.operands) == ("aten._fft_r2c.default", "sin")
    assert "_fft_r2c.Mul" in cause.onnx_nodes
    assert report.causes == (cause,)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_a_dump_is_checked_elsewhere(tmp_path: Path, dtype: torch.dtype) -> None:
    inputs = (cfloat(3, 4, dtype=dtype), cfloat(4, 3, dtype=dtype).detach().t())
    function = lambda z, w: torch.fft.fft(z * w).abs().sum()  # noqa: E731
    backend = DebugBackend(dump=tmp_path)
    torch.compile(function, backend=backend)(*inputs).backward()
    report = check(tmp_path)
    assert report.verdict == "agree", str(report)
    assert {row.phase for row in report.rows} == {"forward", "backward"}


def test_frozen_buffers_may_be_complex() -> None:
    class Turning(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.turns = nn.Buffer(torch.polar(torch.ones(5, 4), torch.randn(5, 4)))

        def forward(self, queries: Tensor) -> Tensor:
            return rotary(queries, self.turns)

    model, queries = Turning(), torch.randn(2, 5, 3, 8)
    compiled = torch.compile(model, backend="dort", options={"freeze": True, "fallback": False})
    with torch.no_grad():
        for _ in range(3):
            assert_close(compiled(queries), model(queries))
            model.turns.mul_(1j)
