"""Distances that a careless "max difference" gets wrong, and laws that hold for every pair."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dort_compare.measure.distance import blocks
from dort_compare.measure.distance.distances import Distance
from dort_compare.measure.distance.metrics import deviation, distance

INF, NAN = math.inf, math.nan
INT64 = torch.iinfo(torch.int64)
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]

Pair = tuple[np.ndarray, np.ndarray]


def of(expected: list[object], got: list[object], dtype: torch.dtype = torch.float32) -> Distance:
    return distance(torch.tensor(expected, dtype=dtype), torch.tensor(got, dtype=dtype))


def pairs(dtype: type[np.generic], elements: st.SearchStrategy[object] | None = None) -> st.SearchStrategy[Pair]:
    """Two arrays of one shape, with equal elements more often than chance gives them."""
    if elements is None:
        elements = hnp.from_dtype(np.dtype(dtype))
    elements = st.sampled_from([dtype(0), dtype(1)]) | elements

    def of_shape(shape: tuple[int, ...]) -> st.SearchStrategy[Pair]:
        array = hnp.arrays(dtype, shape, elements=elements)
        return st.tuples(array, array)

    return hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5).flatmap(of_shape)


def measure(pair: Pair) -> Distance:
    return distance(*map(torch.from_numpy, pair))


finite_floats = pairs(np.float32, st.floats(width=32, allow_nan=False, allow_infinity=False))
any_floats = pairs(np.float64, st.floats(width=32) | st.just(-0.0))
integers = pairs(np.int64)


# ---- regressions: integers and bools ----


def test_uint8_does_not_wrap() -> None:
    result = of([0], [1], torch.uint8)
    assert (result.max_abs, result.mean_abs, result.different) == (1, 1.0, 1)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_extremes(dtype: torch.dtype) -> None:
    bounds = torch.iinfo(dtype)
    result = of([bounds.min, 0], [bounds.max, 0], dtype)
    assert result.max_abs == bounds.max - bounds.min
    assert isinstance(result.max_abs, int)
    assert result.mean_abs == pytest.approx((bounds.max - bounds.min) / 2)
    assert result.scale == max(-bounds.min, 0)
    assert result.worst == (0,)


@pytest.mark.parametrize("base", [2**24, 2**53, 2**62])
def test_int64_neighbours_that_a_float_cannot_tell_apart(base: int) -> None:
    result = of([base], [base + 1], torch.int64)
    assert (result.equal, result.max_abs, result.different, result.scale) == (False, 1, 1, base)


def test_the_larger_of_two_gaps_beyond_int64_is_found() -> None:
    result = of([INT64.min, INT64.max, 5], [INT64.max - 1, INT64.min, 6], torch.int64)
    assert (result.max_abs, result.worst) == (2**64 - 1, (1,))


def test_uint64_is_exact() -> None:
    result = of([2**64 - 1, 2**53], [2**64 - 1, 2**53 + 1], torch.uint64)
    assert (result.max_abs, result.scale, result.worst) == (1, 2**64 - 1, (1,))
    assert of([0], [2**64 - 1], torch.uint64).max_abs == 2**64 - 1


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32])
def test_other_unsigned_integers(dtype: torch.dtype) -> None:
    assert of([0, 7], [torch.iinfo(dtype).max, 7], dtype).max_abs == torch.iinfo(dtype).max


def test_bool_counts_as_zero_and_one() -> None:
    result = of([True, False, True, True, True], [True, True, True, True, False], torch.bool)
    assert result == Distance(
        equal=False,
        finding=None,
        numel=5,
        numbers=5,
        different=2,
        max_abs=1,
        mean_abs=2 / 5,
        scale=1,
        max_rel=1.0,
        cosine=3 / 4,
        worst=(1,),
    )


# ---- regressions: floats ----


def test_float16_difference_does_not_overflow() -> None:
    assert of([-60000.0], [60000.0], torch.float16).max_abs == 120000.0


def test_bfloat16_neighbours() -> None:
    assert of([1.0, 2.0], [1.0078125, 2.0], torch.bfloat16).max_abs == 2**-7


def test_float32_difference_is_taken_in_float64() -> None:
    assert of([1.0], [-(2.0**-30)]).max_abs == 1 + 2.0**-30


def test_the_larger_of_two_gaps_that_float32_rounds_to_one_is_found() -> None:
    result = of([2.0**20, 1.0, 1.0], [2.0**20, -(2.0**-31), -(2.0**-30)])
    assert (result.max_abs, result.worst) == (1 + 2.0**-30, (2,))


@pytest.mark.parametrize("unit", [1e-30, 1e30])
def test_squares_that_leave_float32(unit: float) -> None:
    cosine = of([unit, 0.0], [unit, unit * 1e-4]).cosine
    assert cosine == pytest.approx(1 / math.hypot(1, 1e-4), abs=1e-12)


def test_float64_keeps_its_last_bit() -> None:
    assert of([1.0], [1.0 + 2.0**-52], torch.float64).max_abs == 2.0**-52


def test_float64_too_far_apart_for_float64() -> None:
    result = of([1.5e308], [-1.5e308], torch.float64)
    assert (result.max_abs, result.mean_abs, result.max_rel) == (INF, INF, INF)
    assert result.finding is None


@pytest.mark.parametrize("unit", [1e-160, 1e-170, 1e170])
def test_cosine_is_undefined_where_squares_leave_float64(unit: float) -> None:
    assert of([unit, unit], [unit, 2 * unit], torch.float64).cosine is None


def test_float8() -> None:
    expected = torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn)
    assert distance(expected, torch.tensor([1.0, 4.0]).to(torch.float8_e4m3fn)).max_abs == 2.0


def test_negative_zero_equals_zero() -> None:
    result = of([0.0, 1.0], [-0.0, 1.0])
    assert result.equal
    assert result.different == 0


def test_numbers_of_a_small_pair() -> None:
    assert of([[3.0, 0.0], [-4.0, 0.0]], [[3.0, 0.0], [-4.0, 12.0]]) == Distance(
        equal=False,
        finding=None,
        numel=4,
        numbers=4,
        different=1,
        max_abs=12.0,
        mean_abs=3.0,
        scale=4.0,
        max_rel=3.0,
        cosine=5 / 13,
        worst=(1, 1),
    )


def test_first_of_equal_deviations_is_the_worst() -> None:
    assert of([0.0, 0.0, 0.0], [0.0, -1.0, 1.0]).worst == (1,)


def test_scale_zero() -> None:
    assert of([0.0], [0.0]).max_rel == 0.0
    result = of([0.0], [1e-30])
    assert (result.scale, result.max_rel, result.cosine) == (0.0, INF, None)


def test_complex() -> None:
    result = of([0j, 1 + 1j], [3 + 4j, 1 + 1j], torch.complex64)
    assert (result.max_abs, result.worst) == (5.0, (0,))
    assert result.scale == pytest.approx(math.sqrt(2))
    assert of([complex(NAN, 0), 1j], [complex(NAN, 0), 1j], torch.complex64).equal
    assert distance(torch.tensor([1j]), torch.tensor([1j]).conj()).max_abs == 2.0


# ---- regressions: NaN and inf ----


def test_nan_and_inf_that_match_are_equal() -> None:
    result = of([NAN, INF, -INF, 1.0], [NAN, INF, -INF, 1.0])
    assert result == Distance(
        equal=True,
        finding=None,
        numel=4,
        numbers=3,
        different=0,
        max_abs=0.0,
        mean_abs=0.0,
        scale=1.0,
        max_rel=0.0,
        cosine=1.0,
    )


def test_two_equal_inf_alone() -> None:
    result = of([INF], [INF])
    assert (result.equal, result.max_abs, result.scale, result.cosine) == (True, 0, 0, None)


def test_matching_inf_is_left_out_of_the_mean() -> None:
    result = of([-INF, -INF, 1.0, 2.0], [-INF, -INF, 1.5, 2.0])
    assert (result.max_abs, result.mean_abs, result.scale, result.different) == (0.5, 0.25, 2.0, 1)
    assert result.worst == (2,)


@pytest.mark.parametrize(
    ("expected", "got", "finding"),
    [
        ([1.0, 2.0, INF], [NAN, NAN, NAN], "3 NaN in got where expected has numbers"),
        ([NAN, 2.0], [1.0, 2.0], "1 NaN in expected where got has numbers"),
        ([1.0, 2.0], [-INF, 2.0], "1 inf in got where expected is finite"),
        ([1.0, INF], [1.0, 2.0], "1 inf in expected where got is finite"),
        ([INF], [-INF], "1 inf of opposite sign"),
        ([1.0, NAN], [NAN, 1.0], "1 NaN in got where expected has numbers; 1 NaN in expected where got has numbers"),
    ],
)
@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_or_inf_without_its_match(
    dtype: torch.dtype, expected: list[object], got: list[object], finding: str
) -> None:
    result = of(expected, got, dtype)
    assert not result.equal
    assert result.finding == finding


def test_nan_is_not_a_number_but_outranks_them() -> None:
    result = of([0.0, 1.0, 8.0], [5.0, NAN, 8.0])
    assert (result.max_abs, result.mean_abs, result.scale, result.different) == (5.0, 2.5, 8.0, 2)
    assert result.worst == (1,)


def test_nothing_is_measured_over_no_finite_pair() -> None:
    result = of([1.0, 2.0], [INF, NAN])
    assert (result.max_abs, result.mean_abs, result.max_rel, result.cosine) == (None, None, None, None)
    assert (result.different, result.scale, result.worst) == (2, 2.0, (0,))


# ---- regressions: dtypes, shapes, layouts ----


def test_shapes_never_broadcast() -> None:
    result = distance(torch.zeros(3), torch.zeros(1, 3))
    assert result == Distance(equal=False, finding="shape (1, 3) instead of (3,)", numel=3)


def test_shape_finding_names_both() -> None:
    assert distance(torch.zeros(2, 3), torch.zeros(3, 2)).finding == "shape (3, 2) instead of (2, 3)"


def test_dtype_is_a_finding_and_the_numbers_are_measured() -> None:
    result = distance(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5], dtype=torch.float16))
    assert (result.equal, result.finding, result.max_abs) == (False, "dtype float16 instead of float32", 0.5)


@pytest.mark.parametrize(
    ("expected", "got", "max_abs"),
    [
        (torch.tensor([2**53 + 1, -3]), torch.tensor([1, -3], dtype=torch.int32), 2**53),
        (torch.tensor([True, False]), torch.tensor([1, 2], dtype=torch.uint8), 2),
        (torch.tensor([3]), torch.tensor([2.5]), 0.5),
        (torch.tensor([3.0]), torch.tensor([3 + 1j]), 1.0),
        (torch.tensor([-1]), torch.tensor([1], dtype=torch.uint64), 2),
    ],
)
def test_mixed_dtypes(expected: torch.Tensor, got: torch.Tensor, max_abs: float) -> None:
    assert distance(expected, got).max_abs == max_abs


def test_dtype_alone_makes_equal_elements_unequal_tensors() -> None:
    result = distance(torch.ones(2), torch.ones(2, dtype=torch.float64))
    assert (result.equal, result.different, result.max_abs, result.worst) == (False, 0, 0.0, None)


def test_findings_are_joined() -> None:
    result = distance(torch.ones(1), torch.tensor([NAN], dtype=torch.float64))
    assert result.finding == "dtype float64 instead of float32; 1 NaN in got where expected has numbers"


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, torch.bool, torch.complex64])
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)])
def test_two_empty_tensors_are_equal(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    result = distance(torch.empty(shape, dtype=dtype), torch.empty(shape, dtype=dtype))
    assert result == Distance(True, None, 0, 0, different=0, max_abs=0, mean_abs=0, scale=0, max_rel=0)


def test_empty_tensors_of_two_dtypes() -> None:
    result = distance(torch.empty(0), torch.empty(0, dtype=torch.int64))
    assert (result.finding, result.max_abs) == ("dtype int64 instead of float32", 0)


def test_scalars_are_at_the_empty_index() -> None:
    result = distance(torch.tensor(1.0), torch.tensor(1.5))
    assert (result.max_abs, result.numel, result.worst) == (0.5, 1, ())


def test_layout_and_autograd_do_not_matter() -> None:
    expected = torch.arange(12.0).reshape(3, 4)
    got = expected.clone()
    got[2, 1] += 1
    plain = distance(expected, got)
    assert plain.worst == (2, 1)
    strided = torch.stack([got, got], dim=-1)[..., 0]
    assert distance(expected.t().contiguous().t().requires_grad_(), strided) == plain


def test_expanded_tensors() -> None:
    result = distance(torch.tensor([[1.0], [2.0]]).expand(2, 5), torch.ones(1).expand(2, 5))
    assert (result.max_abs, result.different, result.worst) == (1.0, 5, (1, 0))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a second device")
def test_another_device_is_no_finding() -> None:
    expected = torch.arange(4.0)
    assert distance(expected, expected.cuda()).equal
    assert distance(expected.cuda(), expected + 1) == distance(expected.cuda(), expected.cuda() + 1)


def test_arguments_are_left_as_they_were() -> None:
    expected, got = torch.tensor([1.0, NAN, INF], dtype=torch.float64), torch.tensor([2.0, 1.0, -INF]).double()
    before = expected.clone(), got.clone()
    distance(expected, got)
    assert distance(before[0], expected).equal
    assert distance(before[1], got).equal


# ---- JSON ----


def test_json_is_strict() -> None:
    fields = of([[0.0, NAN]], [[1.0, NAN]]).to_json()
    assert json.loads(json.dumps(fields, allow_nan=False)) == {
        "equal": False,
        "finding": None,
        "numel": 2,
        "numbers": 1,
        "different": 1,
        "max_abs": 1.0,
        "mean_abs": 1.0,
        "scale": 0.0,
        "max_rel": "inf",
        "cosine": None,
        "worst": [0, 0],
    }


@given(any_floats)
def test_json_is_strict_for_any_pair(pair: Pair) -> None:
    json.dumps(measure(pair).to_json(), allow_nan=False)


# ---- laws ----


@given(finite_floats)
def test_agrees_with_numpy_in_float64(pair: Pair) -> None:
    expected, got = (array.astype(np.float64) for array in pair)
    gap, result = np.abs(expected - got), measure(pair)
    assert result.finding is None
    assert result.max_abs == gap.max(initial=0)
    assert result.mean_abs == pytest.approx(gap.mean() if gap.size else 0)
    assert result.scale == np.abs(expected).max(initial=0)
    assert result.different == np.count_nonzero(gap)
    assert result.equal == np.array_equal(expected, got)
    assert (result.worst is None) == result.equal
    if result.worst is not None:
        assert gap[result.worst] == gap.max()
    norms = np.linalg.norm(expected) * np.linalg.norm(got)
    if result.cosine is not None:
        assert result.cosine == pytest.approx(np.vdot(expected, got) / norms, abs=1e-12)
    else:
        assert norms == 0


def test_the_largest_gap_may_lie_in_a_later_block_that_rounds_it_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 2)
    expected, got = torch.tensor([1, 1, 1, -(2.0**-52)]), torch.tensor([1 + 2.0**-12, 1, 1, 2.0**-12])
    found = distance(expected, got)
    assert (found.max_abs, found.worst) == (2.0**-12 + 2.0**-52, (3,))


@given(
    hnp.arrays(np.float32, st.integers(1, 40), elements=st.floats(-(2.0**20), 2.0**20, width=32)),
    st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    st.integers(-20, 0),
    st.integers(1, 7),
    st.randoms(use_true_random=False),
)
def test_what_lies_close_is_measured_as_in_float64(
    values: np.ndarray, dtype: torch.dtype, exponent: int, size: int, random: object
) -> None:
    generator = torch.Generator().manual_seed(random.getrandbits(32))  # type: ignore[attr-defined]
    in_range = partial(torch.clamp, min=-60000, max=60000)
    expected = in_range(torch.from_numpy(values)).to(dtype)
    apart = expected.abs().max().float() * 2.0**exponent * torch.randn(expected.shape, generator=generator).round()
    moved = expected.float() + apart * torch.randint(0, 2, expected.shape, generator=generator)
    got = in_range(moved).to(dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK", size)
        close, wide = distance(expected, got), distance(expected.double(), got.double())
    for name in ("equal", "different", "max_abs", "scale", "max_rel"):
        assert getattr(close, name) == getattr(wide, name), name
    assert close.mean_abs == pytest.approx(wide.mean_abs, rel=1e-6)
    if wide.cosine is None:
        assert close.cosine is None
    else:
        assert close.cosine == pytest.approx(wide.cosine, rel=0, abs=1e-12 + 1e-6 * (1 - wide.cosine))
    if wide.worst is None:
        assert close.worst is None
    else:
        assert close.worst is not None
        gaps = [(expected[at].double() - got[at].double()).abs() for at in (wide.worst, close.worst)]
        assert gaps[0] == gaps[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("elsewhere", [0.0, 2.0**-20], ids=["equal masks", "masks apart"])
@pytest.mark.parametrize("size", [1.0, 2.0**-45, 2.0**38, 2.0**60])
def test_beside_masks_all_is_measured_as_in_float64(dtype: torch.dtype, elsewhere: float, size: float) -> None:
    lowest = torch.finfo(dtype).min
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(300, 700, generator=generator, dtype=torch.float64) * size
    moved = values * (1 + 1e-2 * torch.randn(values.shape, generator=generator))
    mask = torch.rand(values.shape, generator=generator) < 0.5
    expected, got = values.masked_fill(mask, lowest).to(dtype), moved.masked_fill(mask, lowest).to(dtype)
    got[0, 0], expected[0, 0] = lowest * (1 - elsewhere), lowest
    close, wide = distance(expected, got), distance(expected.double(), got.double())
    assert close.mean_abs == pytest.approx(wide.mean_abs, rel=1e-6)
    assert close.cosine == pytest.approx(wide.cosine, rel=1e-12)
    assert replace(close, mean_abs=None, cosine=None) == replace(wide, mean_abs=None, cosine=None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(700, 500), (2, 300, 700), (3, 2, 400_000)])
def test_turned_matrices_are_measured_in_their_own_order(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    expected = torch.randn(shape, generator=generator, dtype=dtype).mT
    got = expected.clone(memory_format=torch.contiguous_format)
    got.view(-1)[[5, 4000, got.numel() // 2]] += torch.tensor([1e-4, 2e-4, 3e-4], dtype=dtype)
    found = distance(expected, got)
    assert found == distance(expected.contiguous(), got)
    assert found.worst == np.unravel_index(got.numel() // 2, got.shape)
    assert deviation(expected, got.double()) == found.max_abs


@pytest.mark.parametrize("move", [lambda e: e + 2**-13, lambda e: e * (1 + 2**-13), lambda e: e + e.flip(0) * 1e-6])
@pytest.mark.parametrize("size", [2.0**-45, 1.0, 2.0**45])
def test_the_cosine_of_many_that_lie_close(move, size: float) -> None:
    values = torch.rand(2**17, generator=torch.Generator().manual_seed(0)) + 1
    expected, got = values * size, move(values) * size
    close, wide = distance(expected, got).cosine, distance(expected.double(), got.double()).cosine
    gap = ((expected - got).double().square().sum() / expected.double().square().sum()).item()
    assert close == pytest.approx(wide, rel=0, abs=1e-13 + 1e-6 * gap)


@given(integers)
def test_agrees_with_python_integers(pair: Pair) -> None:
    expected, got = (array.ravel().tolist() for array in pair)
    gaps, result = [abs(e - g) for e, g in zip(expected, got, strict=True)], measure(pair)
    assert result.max_abs == max(gaps, default=0)
    assert result.different == sum(gap > 0 for gap in gaps)
    assert result.mean_abs == pytest.approx(sum(gaps) / len(gaps) if gaps else 0)
    assert result.scale == max(map(abs, expected), default=0)
    assert result.equal == (expected == got)
    if result.worst is not None:
        assert gaps[np.ravel_multi_index(result.worst, pair[0].shape)] == max(gaps)


@given(any_floats)
def test_equal_is_numpys_with_nan(pair: Pair) -> None:
    assert measure(pair).equal == np.array_equal(*pair, equal_nan=True)
    assert measure((pair[0], pair[0].copy())).equal


@given(any_floats | integers)
def test_symmetric(pair: Pair) -> None:
    there, back = measure(pair), measure(pair[::-1])
    assert (there.equal, there.different, there.worst) == (back.equal, back.different, back.worst)
    assert (there.max_abs, there.mean_abs, there.cosine) == (back.max_abs, back.mean_abs, back.cosine)


@given(finite_floats | integers)
def test_zero_iff_equal(pair: Pair) -> None:
    result = measure(pair)
    assert (result.max_abs == 0) == (result.max_rel == 0) == (result.different == 0) == result.equal


@given(any_floats | integers, st.integers(1, 7), st.booleans())
def test_blocks_are_invisible(pair: Pair, size: int, transposed: bool) -> None:
    if transposed:
        pair = pair[0].T, pair[1].T
    whole = measure(pair)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK", size)
        cut = measure(pair)
    rounded = ("mean_abs", "cosine")  # sums, taken in another order
    for name, value in vars(whole).items():
        near = pytest.approx(value, rel=1e-12, abs=1e-12) if name in rounded and value is not None else value
        assert getattr(cut, name) == near, name


@given(any_floats | integers, st.randoms())
def test_order_is_invisible(pair: Pair, random: object) -> None:
    expected, got = (array.ravel() for array in pair)
    order = np.random.default_rng(random.getrandbits(32)).permutation(len(expected))  # type: ignore[attr-defined]
    before, after = measure((expected, got)), measure((expected[order], got[order]))
    for name in ("equal", "finding", "different", "max_abs", "scale", "max_rel"):
        assert getattr(before, name) == getattr(after, name), name
    assert (before.worst is None) == (after.worst is None)
    if before.worst is not None and after.worst is not None and before.finding is None:
        worst = [measure((expected[i : i + 1], got[i : i + 1])).max_abs for i in (*before.worst, order[after.worst[0]])]
        assert worst[0] == worst[1] == before.max_abs


@given(finite_floats, st.integers(-30, 30))
def test_numbers_scale_with_the_tensors(pair: Pair, exponent: int) -> None:
    tensors = [torch.from_numpy(array).double() for array in pair]
    small, large = distance(*tensors), distance(*(tensor * 2.0**exponent for tensor in tensors))
    for name in ("max_abs", "mean_abs", "scale"):
        assert getattr(large, name) == getattr(small, name) * 2.0**exponent, name
    for name in ("equal", "finding", "different", "max_rel", "worst"):
        assert getattr(large, name) == getattr(small, name), name
    assert large.cosine == (None if small.cosine is None else pytest.approx(small.cosine, abs=1e-12))


@given(any_floats, st.integers(1, 7), st.randoms(use_true_random=False))
def test_deviation_is_symmetric_and_sees_neither_blocks_nor_order(pair: Pair, size: int, random: object) -> None:
    exact, value = map(torch.from_numpy, pair)
    whole = deviation(exact, value)
    assert whole == deviation(value, exact) == (measure(pair).max_abs or 0)
    order = np.random.default_rng(random.getrandbits(32)).permutation(exact.numel())  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK", size)
        assert whole == deviation(exact, value) == deviation(exact.flatten()[order], value.flatten()[order])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_deviation_is_the_max_abs_of_distance(dtype, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", 7)
    exact = torch.linspace(-3, 5, 60, dtype=torch.float64).reshape(5, 12)
    value = (exact * 1.01).to(dtype)
    value[0, 3], value[4, 1] = math.nan, math.inf
    assert deviation(exact, value) == distance(exact, value).max_abs
    assert deviation(exact.t(), value.t()) == deviation(exact, value)


def test_deviation_of_nothing_and_of_two_shapes():
    assert deviation(torch.empty(0), torch.empty(0)) == 0
    with pytest.raises(ValueError, match=r"^no deviation of shape \(1, 3\) from \(3,\)$"):
        deviation(torch.zeros(3), torch.zeros(1, 3))


def test_sides_get_the_names_of_what_was_compared() -> None:
    found = distance(torch.tensor([1.0, NAN]), torch.tensor([NAN, 1.0]))
    named = found.between("torch", "ONNX")
    assert named.finding == "1 NaN in ONNX where torch has numbers; 1 NaN in torch where ONNX has numbers"
    assert found.between("a", "b").max_abs == found.max_abs
    same = distance(torch.ones(2), torch.ones(2))
    assert same.between("torch", "ONNX") is same
