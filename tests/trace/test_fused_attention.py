"""CUDA's fused attention in float64, which its kernels lack or misread, as the referee of a comparison has it.

The operators are called on the CPU, where torch has no kernels of theirs.
"""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from test_cuda_attention import BIAS, CUDNN, EFFICIENT, FAMILIES, FLASH, TRAINED, Attention
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode

from dort_compare.measure.distance.metrics import distance
from dort_compare.measure.noise.local import local_error
from dort_compare.trace import Replay
from dort_compare.trace.definition import by_definition
from dort_compare.trace.float64 import REFUSALS, call_in_float64

aten = torch.ops.aten


def arguments(attention: Attention, inputs: list[Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Those of the forward operator."""
    query, key, value, *bias = inputs
    args = (query, key, value) if attention.family == FLASH else (query, key, value, *(bias or [None]), True)
    return args, {"is_causal": attention.is_causal, "scale": attention.scale}


def backward_arguments(
    attention: Attention, inputs: list[Tensor], grad: Tensor, results: tuple[Any, ...]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    query, key, value, *bias = inputs
    state, causal = torch.zeros((), dtype=torch.int64), attention.is_causal
    lengths = (None, None, query.shape[2], key.shape[2])
    args: tuple[Any, ...] = (grad, query, key, value)
    match attention.family:
        case "flash":
            args = (*args, *results[:2], *lengths, 0.0, causal, state, state)
        case "efficient":
            args = (*args, *(bias or [None]), *results[:2], state, state, 0.0, [True] * 4, causal)
        case _:
            args = (*args, *results[:2], state, state, *(bias or [None]), *lengths, 0.0, causal)
    return args, {"scale": attention.scale}


def operators(family: str) -> tuple[Any, Any]:
    name = f"_scaled_dot_product_{family}_attention"
    return getattr(aten, name).default, getattr(aten, f"{name}_backward").default


@pytest.mark.parametrize("attention", TRAINED.values(), ids=TRAINED)
def test_it_is_the_formula_and_its_gradient(attention: Attention) -> None:
    forward, backward = operators(attention.family)
    wide = [tensor.detach().double().requires_grad_() for tensor in attention.inputs()]
    output, logsumexp = attention.formula(*wide)
    grad = torch.linspace(-1, 1, output.numel(), dtype=torch.float64).reshape(output.shape)
    output.backward(grad)
    inputs = [tensor.detach() for tensor in attention.inputs()]
    args, kwargs = arguments(attention, inputs)
    results = call_in_float64(forward, args, kwargs)
    found = results[1].squeeze(-1) if attention.family == CUDNN else results[1][..., : output.shape[2]]
    is_seen = logsumexp.isfinite()
    torch.testing.assert_close(results[0], output.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found[is_seen], logsumexp.detach()[is_seen], rtol=1e-12, atol=1e-12)
    args, kwargs = backward_arguments(attention, inputs, grad, results)
    gradients = call_in_float64(backward, args, kwargs)
    bias = [wide[3].grad] if len(wide) > 3 and attention.family == EFFICIENT else []
    for one, other in zip(gradients, [*(tensor.grad for tensor in wide[:3]), *bias], strict=False):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)
    assert by_definition(backward, args, kwargs, torch.neg)[0].shape == gradients[0].shape


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("lengths", [(5, 7), (32, 32)])
def test_its_results_are_those_of_the_operator(family: str, lengths: tuple[int, int]) -> None:
    attention = Attention(family, lengths=lengths)
    args, kwargs = arguments(attention, [tensor.detach() for tensor in attention.inputs()])
    found = call_in_float64(operators(family)[0], args, kwargs)
    with FakeTensorMode():
        on_cuda = [torch.empty(each.shape, device="cuda") if isinstance(each, Tensor) else each for each in args]
        traced = operators(family)[0](*on_cuda, **kwargs)
    for one, other in zip(found, traced, strict=True):
        if isinstance(one, Tensor) and one.numel() and other is not None:
            assert one.shape == other.shape or one.dtype == torch.int64
        elif isinstance(one, int):
            assert one == other


def test_a_row_that_sees_no_key_is_what_the_kernels_make_of_it() -> None:
    for attention, rows, right in (
        (Attention(FLASH, lengths=(7, 4), is_causal=True), slice(0, 3), torch.inf),
        (Attention(EFFICIENT, bias_shape=BIAS, hidden=(1, 2)), slice(1, 3), -torch.inf),
    ):
        args, kwargs = arguments(attention, [tensor.detach() for tensor in attention.inputs()])
        output, logsumexp, *_ = call_in_float64(operators(attention.family)[0], args, kwargs)
        assert (output[:, :, rows] == 0).all()
        assert (logsumexp[:, :, rows] == right).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_dropout_is_left_to_the_kernel(family: str) -> None:
    attention = Attention(family)
    args, kwargs = arguments(attention, [tensor.detach() for tensor in attention.inputs()])
    with pytest.raises(REFUSALS):
        call_in_float64(operators(family)[0], args, {**kwargs, "dropout_p": 0.1})


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("error", "is_noise"), [(1e-7, True), (1e-4, False)])
def test_a_gradient_that_cancels_is_noise_and_more_is_not(family: str, error: float, is_noise: bool) -> None:
    """That of the first token, which sees itself alone, is 0: its probability is 1, whatever it asks for."""
    attention = Attention(family, lengths=(16, 16), is_causal=True)
    forward, backward = operators(family)
    inputs = [tensor.detach() for tensor in attention.inputs()]
    args, kwargs = arguments(attention, inputs)
    results = [each.float() if isinstance(each, Tensor) else each for each in call_in_float64(forward, args, kwargs)]
    args, kwargs = backward_arguments(attention, inputs, torch.randn_like(results[0]), tuple(results))
    graph, values = fx.Graph(), dict[str, Any]()

    def placed(each: Any) -> Any:
        if not isinstance(each, Tensor):
            return each
        node = graph.placeholder(f"x{len(values)}")
        node.meta["val"] = values[node.name] = each
        return node

    call = graph.call_function(backward, tuple(map(placed, args)), kwargs)
    node = graph.call_function(operator.getitem, (call, 0))
    right = call_in_float64(backward, args, kwargs)[0].float()
    node.meta["val"] = right
    found = right.clone()
    found[:, :, 0] += error * torch.randn_like(found[:, :, 0])
    whole = distance(right, found).between("torch", "ONNX")
    assert local_error(Replay(values), node, right, found, whole).is_noise is is_noise
