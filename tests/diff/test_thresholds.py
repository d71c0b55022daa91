"""Elements at a threshold, which a rounding moves to either side."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from graph_text import model
from onnx import numpy_helper
from pairs_of_models import change

from dort_compare.onnx_diff import diff


@pytest.mark.parametrize("swapped", [False, True])
def test_what_is_quantized_to_either_kind_of_byte_agrees(swapped: bool) -> None:
    """ONNX Runtime's optimizer makes unsigned bytes of signed ones, 128 more each."""
    signed = "q = QuantizeLinear(x, s, z)\n d = DequantizeLinear(q, s, z)\n t = Transpose<perm = [1, 0, 2]>(d)"
    signed = f"{signed}\n q2 = QuantizeLinear(t, s, z)\n y = DequantizeLinear(q2, s, z)"
    unsigned = "q = QuantizeLinear(x, s, z)\n q2 = Transpose<perm = [1, 0, 2]>(q)\n y = DequantizeLinear(q2, s, z)"
    zeros = np.int8(-7), np.uint8(121)
    texts = (f"agraph (float[3, 7, 12] x) => (float[7, 3, 12] y) {{ {steps} }}" for steps in (signed, unsigned))
    both = [model(text, s=np.float32(0.05), z=zero) for text, zero in zip(texts, zeros, strict=True)]
    found = diff(*(reversed(both) if swapped else both))
    assert found.verdict == "agree", str(found)
    wrong = change("y", op_type="DequantizeLinear", input=["q2", "s2", "z"])
    wrong(both[1].graph)
    both[1].graph.initializer.append(numpy_helper.from_array(np.float32(0.06), "s2"))
    found = diff(*(reversed(both) if swapped else both))
    assert found.findings.causes[0].row.pair.second in {"y", "s2"}, str(found)


TO_LEVELS = {
    "to even": "d = Div(x, s)\n r = Round(d)\n y = Mul(r, s)",
    "up": "d = Div(x, s)\n a = Add(d, half)\n r = Floor(a)\n y = Mul(r, s)",
}


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("steps", TO_LEVELS.values(), ids=TO_LEVELS)
@pytest.mark.parametrize("off", [0, 1, 3])
def test_what_lies_at_a_threshold_excuses_no_other_element(off: int, steps: str, swapped: bool) -> None:
    """Every second number lies between two levels, and may be rounded to either; no level is off by more than that."""
    bytes_between = "q = QuantizeLinear(x, s, z)\n y = DequantizeLinear(q, s, off)"
    texts = (f"agraph (float[8, 8] x) => (float[8, 8] y) {{ {each} }}" for each in (bytes_between, steps))
    constants = {"s": np.float32(1), "z": np.int8(0), "off": np.int8(off), "half": np.float32(0.5)}
    both = [model(text, **constants) for text in texts]
    levels = torch.from_numpy(np.random.default_rng(0).integers(-60, 60, (8, 8)).astype(np.float32))
    found = diff(*(reversed(both) if swapped else both), inputs={"x": levels / 2})
    assert found.verdict == ("diverge" if off else "agree"), str(found)


@pytest.mark.parametrize("place", range(0, 64, 8))
def test_a_lone_element_at_a_threshold_may_lie_on_either_side(place: int) -> None:
    bytes_between = "q = QuantizeLinear(x, s, z)\n y = DequantizeLinear(q, s, z)"
    texts = (f"agraph (float[8, 8] x) => (float[8, 8] y) {{ {each} }}" for each in (bytes_between, TO_LEVELS["up"]))
    both = [model(text, s=np.float32(1), z=np.int8(0), half=np.float32(0.5)) for text in texts]
    x = 9 * torch.randn(64, generator=torch.Generator().manual_seed(0))
    x[place] = 2.5
    found = diff(*both, inputs={"x": x.reshape(8, 8)})
    assert found.verdict == "agree", str(found)


@pytest.mark.parametrize("place", [6, 7, 44])
def test_a_lone_integer_at_a_threshold_may_lie_on_either_side(place: int) -> None:
    steps = "y = QuantizeLinear(x, s, z)", "a = Add(x, half)\n r = Floor(a)\n y = Cast<to = 3>(r)"
    texts = (f"agraph (float[8, 8] x) => (int8[8, 8] y) {{ {each} }}" for each in steps)
    both = [model(text, s=np.float32(1), z=np.int8(0), half=np.float32(0.5)) for text in texts]
    x = 9 * torch.randn(64, generator=torch.Generator().manual_seed(0))
    x[place] = 2.5
    found = diff(*both, inputs={"x": x.reshape(8, 8)})
    assert found.verdict == "agree", str(found)


@pytest.mark.parametrize("swapped", [False, True])
def test_of_many_elements_at_a_threshold_some_move_in_none_of_the_ways_tried(swapped: bool) -> None:
    texts = (f"agraph (float[256, 256] x) => (float[256, 256] y) {{ {each} }}" for each in TO_LEVELS.values())
    both = [model(text, s=np.float32(1), half=np.float32(0.5)) for text in texts]
    levels = torch.from_numpy(np.random.default_rng(0).integers(-60, 60, (256, 256)).astype(np.float32))
    found = diff(*(reversed(both) if swapped else both), inputs={"x": levels / 2})
    assert found.verdict == "agree", str(found)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
def test_a_sum_in_another_order_may_cross_a_threshold_that_one_rounding_does_not(seed: int) -> None:
    generator = np.random.default_rng(seed)
    w = (8 * generator.standard_normal((256, 256))).astype(np.float32)
    x = torch.from_numpy(generator.standard_normal((256, 256)).astype(np.float32))
    other = "t = Transpose<perm = [1, 0]>(x)\n m = MatMul(wt, t)\n r = Round(m)\n y = Transpose<perm = [1, 0]>(r)"
    texts = (
        f"agraph (float[256, 256] x) => (float[256, 256] y) {{ {each} }}"
        for each in ("m = MatMul(x, w)\n y = Round(m)", other)
    )
    found = diff(*(model(text, w=w, wt=np.ascontiguousarray(w.T)) for text in texts), inputs={"x": x})
    assert found.verdict == "agree", str(found)


@pytest.mark.parametrize(("off", "verdict"), [(0, "agree"), (3, "diverge")])
def test_where_every_element_lies_at_a_threshold_no_more_than_one_jump_is_noise(off: int, verdict: str) -> None:
    texts = ("r = Round(x)\n y = Add(r, off)", "a = Add(x, half)\n r = Floor(a)\n y = Identity(r)")
    constants = {"off": np.float32(off), "half": np.float32(0.5)}
    both = [model(f"agraph (float[8, 8] x) => (float[8, 8] y) {{ {each} }}", **constants) for each in texts]
    found = diff(*both, inputs={"x": torch.arange(64.0).reshape(8, 8) + 0.5})
    assert found.verdict == verdict, str(found)
