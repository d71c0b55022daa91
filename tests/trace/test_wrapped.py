"""Parameters that are made of other tensors, as torchao's quantized weights are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from dort_compare import DebugBackend, compare
from dort_compare.comparison.compare import compare_with
from dort_compare.compiled import graph_run
from dort_compare.errors import UsageError
from dort_compare.offline import check
from dort_compare.trace.call import Call, given
from dort_compare.trace.model_in_float64 import run_in_float64
from dort_compare.trace.modules import run_module
from dort_compare.trace.outcome import Outcome
from dort_compare.trace.wrapped import plain_tensors

aten = torch.ops.aten


class Scaled(Tensor):
    """Integers, and what their rows are multiplied with."""

    def __new__(cls, integers: Tensor, scale: Tensor) -> Scaled:
        return Tensor._make_wrapper_subclass(cls, integers.shape, dtype=scale.dtype)  # type: ignore[attr-defined,no-any-return]

    def __init__(self, integers: Tensor, scale: Tensor) -> None:
        self.integers, self.scale = integers, scale

    def __repr__(self) -> str:  # torch's would compute, in the middle of tracing, for its log
        return "Scaled()"

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["integers", "scale"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], _: None, size: Any, stride: Any) -> Scaled:
        return Scaled(**inner)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.detach.default:
            return cls(args[0].integers, args[0].scale)
        args = tree_map_only(cls, lambda each: each.integers.to(each.scale.dtype) * each.scale, args)
        return func(*args, **(kwargs or {}))


def scaled(rows: int, columns: int, dtype: torch.dtype) -> Scaled:
    generator = torch.Generator().manual_seed(rows)
    integers = torch.randint(-128, 128, (rows, columns), dtype=torch.int8, generator=generator)
    return Scaled(integers, (torch.rand(rows, 1, generator=generator) / 100).to(dtype))


class Adapted(nn.Module):
    """A weight that is quantized and does not learn, and one beside it that does."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(scaled(8, 16, dtype), requires_grad=False)
        self.register_buffer("shift", scaled(2, 8, dtype))
        self.adapter = nn.Linear(16, 8, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(nn.functional.linear(x, self.weight) + self.adapter(x)) + self.shift


def test_they_go_by_the_names_of_what_they_are_made_of() -> None:
    made_of = ["weight.integers", "weight.scale"]
    named = given(dict(Adapted().named_parameters()), Call(()))
    assert [*named] == [*made_of, "adapter.weight", "adapter.bias"]
    assert [name for name, _ in plain_tensors(Adapted().named_buffers())] == ["shift.integers", "shift.scale"]


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_they_are_compared(dtype: torch.dtype, backward: bool, tmp_path: Path) -> None:
    backend = DebugBackend(dump=tmp_path)
    model, x = Adapted(dtype), torch.randn(2, 16, dtype=dtype)
    found = compare_with(model, Call((x,), backward=backward), backend)
    report = found.report
    assert report.verdict == "agree", str(report)
    assert not report.fallbacks
    assert {"aten._to_copy.default", "aten.mul.Tensor", "aten.tanh.default"} <= {row.target for row in report.rows}
    gradients = {"adapter.weight", "adapter.bias"} if backward else set()
    assert {row.name for row in report.outputs if row.kind == "gradient"} == gradients
    named = graph_run(
        found.graphs[0], dict(plain_tensors((*model.named_parameters(), *model.named_buffers())))
    ).input_names
    assert {"weight.integers", "weight.scale", "shift.integers", "shift.scale"} <= {*named.values()}
    assert check(tmp_path).verdict == "agree"


def test_a_gradient_by_one_is_refused() -> None:
    model = Adapted()
    model.weight.requires_grad_()
    x = torch.randn(2, 16)
    message = (
        r"^the gradient by weight, a Scaled, which is made of other tensors, .* requires_grad_\(False\), or compare"
    )
    with pytest.raises(UsageError, match=message):
        compare(model, (x,), backward=True)
    assert compare(model, (x,)).verdict == "agree"


class OnAMesh(Scaled):
    """Made of more than tensors, as a DTensor is."""

    mesh = object()

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["integers", "scale", "mesh"], None


def test_what_is_made_of_more_than_tensors_is_refused() -> None:
    model = Adapted()
    model.weight = nn.Parameter(OnAMesh(model.weight.integers, model.weight.scale), requires_grad=False)
    with pytest.raises(UsageError, match=r"^a parameter, .* is a OnAMesh, a tensor subclass without memory, .* plain"):
        compare(model, (torch.randn(2, 16),))


def test_they_have_no_float64() -> None:
    assert run_in_float64(Adapted(), Call((torch.randn(2, 16),))) == Outcome({})


class Growing(Adapted):
    def forward(self, x: Tensor) -> Tensor:
        self.weight.scale.mul_(2)
        return super().forward(x)


def test_what_is_written_in_one_is_an_update_and_has_its_content_back() -> None:
    model = Growing()
    before = model.weight.scale.clone()
    outcome = run_module(model, dict(model.named_parameters()), Call((torch.randn(2, 16),)), model.named_buffers)
    assert torch.equal(outcome.updates["weight.scale"], 2 * before)
    assert torch.equal(model.weight.scale, before)
