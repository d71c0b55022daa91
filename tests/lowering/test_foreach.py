"""Optimizers over lists of tensors, and the clipping of gradients, run whole in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dort_compare import DebugBackend
from dort_compare.lowering.foreach import decompositions

aten = torch.ops.aten
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, foreach=True),
    "Adam": lambda parameters: torch.optim.Adam(parameters, amsgrad=True, weight_decay=0.1, foreach=True),
    "RMSprop": lambda parameters: torch.optim.RMSprop(parameters, centered=True, momentum=0.5, foreach=True),
    "Rprop": lambda parameters: torch.optim.Rprop(parameters, foreach=True),
}


def trained(name: str, backend: DebugBackend | None) -> list[Tensor]:
    """The parameters after three steps with clipped gradients."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    optimizer = OPTIMIZERS[name](model.parameters())

    def step() -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()

    compiled = torch.compile(step, backend=backend) if backend else step
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 6)).square().sum().backward()
        compiled()
    return [parameter.detach() for parameter in model.parameters()]


@pytest.mark.filterwarnings("ignore:Profiler record function", "ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_step_is_eagers(name: str) -> None:
    torch.testing.assert_close(trained(name, DebugBackend(fallback=False)), trained(name, None), rtol=1e-5, atol=1e-6)


def tensors() -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.rand(2, 3) + 0.5, torch.rand(4) + 0.5, torch.rand(()) + 0.5]


CALLS: dict[str, Callable[[list[Tensor]], Any]] = {
    "scalars": lambda x: aten._foreach_mul.ScalarList(x, [2.0, 3.0, 0.5]),
    "a list, scaled": lambda x: aten._foreach_add.List(x, x, alpha=2),
    "norms": lambda x: aten._foreach_norm.Scalar(x, 1),
    "products added": lambda x: aten._foreach_addcmul.Scalar(x, x, x, value=0.5),
    "between": lambda x: aten._foreach_lerp.Scalar(x, aten._foreach_exp(x), 0.3),
    "a power of a number": lambda x: aten._foreach_pow.ScalarAndTensor(2.0, x),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_list_is_computed_tensor_by_tensor(call: Callable[[list[Tensor]], Any]) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda *x: call(list(x)), backend=DebugBackend(fallback=False))
    torch.testing.assert_close(compiled(*tensors()), call(tensors()))


def test_what_writes_into_its_operands_is_no_definition() -> None:
    assert not [op for op in decompositions() if op._schema.is_mutable]
