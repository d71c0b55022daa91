"""Inputs that are described, and what a factory may return."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dort_compare.cli.called_module import called_module
from dort_compare.cli.inputs import Spec, is_spec
from dort_compare.errors import UsageError

NET = nn.Linear(3, 2)


def draw(text, seed=0, **given):
    return Spec.of(text).draw(torch.Generator().manual_seed(seed), **given)


def called(made, *inputs, backward=False, seed=0):
    return called_module(made, inputs, seed=seed, backward=backward, what="model:make")


@pytest.mark.parametrize(
    ("text", "dtype", "shape"),
    [
        ("float32[2,16]", torch.float32, (2, 16)),
        ("f32[2, 16]", torch.float32, (2, 16)),
        ("bf16[4]", torch.bfloat16, (4,)),
        ("float64[]", torch.float64, ()),
        ("bool[0,3]", torch.bool, (0, 3)),
        ("b8[3]", torch.bool, (3,)),
        ("complex64[2]", torch.complex64, (2,)),
        ("float8_e4m3fn[5]", torch.float8_e4m3fn, (5,)),
        ("uint8[7]:256", torch.uint8, (7,)),
    ],
)
def test_a_dtype_and_sizes(text, dtype, shape):
    assert is_spec(text)
    drawn = draw(text)
    assert (drawn.dtype, tuple(drawn.shape), drawn.requires_grad) == (dtype, shape, False)
    assert torch.equal(
        drawn.float() if dtype.itemsize == 1 else drawn, draw(text).float() if dtype.itemsize == 1 else draw(text)
    )


def test_ranges_leave_out_their_upper_end():
    ids = draw("int64[10000]:5")
    assert ids.unique().tolist() == [0, 1, 2, 3, 4]
    assert draw("i32[10000]:-2:1").unique().tolist() == [-2, -1, 0]
    assert draw("i32[1000]:-2:0").unique().tolist() == [-2, -1]
    assert draw("int64[1000]").unique().tolist() == [0, 1]
    floats = draw("f32[10000]:-1:3")
    assert -1 <= floats.min() < -0.9
    assert 2.9 < floats.max() < 3
    assert draw("f32[10000]").std() == pytest.approx(1, abs=0.05)


def test_seeds_and_gradients():
    assert not torch.equal(draw("f32[9]"), draw("f32[9]", seed=1))
    assert draw("f16[2]", requires_grad=True).is_leaf
    both = called((NET, ("f32[2,3]", "f32[2,3]")), backward=True).args
    assert all(each.requires_grad for each in both)
    assert not torch.equal(*both)
    assert not called((NET, ("i64[2]:4",)), backward=True).args[0].requires_grad


@pytest.mark.parametrize(
    "text",
    [
        "float33[2]",
        "float32",
        "float32[2",
        "f32[-1]",
        "f32[2,,3]",
        "f32[,2]",
        "f32[,]",
        "f32[a]",
        "2=f32[2]",
        "f32[2]:",
        "f32[2]:x",
        "f32[2]:3:1",
        "i64[2]:inf",
    ],
)
def test_what_describes_no_input_is_one_line(text):
    with pytest.raises(UsageError, match="describes no input; write a dtype and sizes") as caught:
        Spec.of(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["float32[-2,16]", "f32[a]", "ids=int64[2", "f32[2]:x", "float33[2]"])
def test_what_means_to_describe_an_input_is_no_other_argument(text):
    assert is_spec(text)


@pytest.mark.parametrize("text", ["seven", "int64", "words [of] a text", "float32", "sum(f32[2])"])
def test_other_text_is_an_argument(text):
    assert not is_spec(text)


@pytest.mark.parametrize(
    "text", ["int64[2]:0.5", "int8[2]:1000", "uint8[2]:-1:1", "i64[2]:1e30", "f16[2]:1e6", "uint64[2]:1.8e19"]
)
def test_a_range_that_the_dtype_does_not_hold_is_one_line(text):
    with pytest.raises(UsageError, match=r"has a range that \w+ does not hold; choose another one$"):
        Spec.of(text)


@pytest.mark.parametrize("text", ["float32[99999999999,99999999999]", "int8[99999999999999999999]"])
def test_sizes_that_no_memory_holds_are_one_line(text):
    with pytest.raises(UsageError, match=r"^not enough memory for an input of sizes \[9") as caught:
        draw(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("made", [(nn.Linear(3, 2, device="meta"), "f32[2,3]"), (NET, torch.ones(2, device="meta"))])
def test_what_holds_no_values_cannot_be_moved(made):
    with pytest.raises(UsageError, match=r"^the model and its inputs cannot be moved to cpu: .*meta") as caught:
        called(made).to("cpu")
    assert "\n" not in str(caught.value)


def test_what_a_factory_may_return():
    x = torch.ones(2, 3)
    assert called((NET, x)).args == (x,)
    assert called((NET, (x, 2))).args == (x, 2)
    assert called([NET, [x]]).args == (x,)
    assert called((NET, {"input": x})).kwargs == {"input": x}
    assert called((NET, (x,), {"flag": "fast"})).kwargs == {"flag": "fast"}
    assert called((NET, "f32[2,3]")).args[0].shape == (2, 3)
    assert called((NET, {"input": "f32[2,3]"})).kwargs["input"].shape == (2, 3)
    nested = called((NET, ({"a": ["f32[1]", 3]},))).args[0]
    assert (nested["a"][0].shape, nested["a"][1]) == ((1,), 3)
    named = called(NET, "f32[2,3]", "mask=b8[2]")
    assert (named.args[0].shape, named.kwargs["mask"].dtype) == ((2, 3), torch.bool)
    assert called((NET, x), "f32[4,3]").args[0].shape == (4, 3)


@pytest.mark.parametrize(
    ("made", "inputs", "message"),
    [
        (3, (), "model:make returned an int; return a torch.nn.Module, (module, inputs) or (module, args, kwargs)"),
        (None, (), "model:make returned a NoneType; "),
        ((), (), "model:make returned (); "),
        ((torch.ones(2), NET), (), "model:make returned (Tensor, Linear); "),
        ((NET, 1, {}, 2), (), "model:make returned (Linear, int, dict, int); "),
        ((NET, (1,), 2), (), "whose third is no dict of keyword arguments"),
        (
            NET,
            (),
            "model:make is a module without inputs: return them with it, or describe them: --input float32[2,16]",
        ),
        (NET, ("x=f32[2]", "x=f32[2]"), "the input x is given twice"),
        (NET, ("seven",), "'seven' describes no input"),
    ],
)
def test_what_is_no_module_with_inputs_is_one_line(made, inputs, message):
    with pytest.raises(UsageError) as caught:
        called(made, *inputs)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
