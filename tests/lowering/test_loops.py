"""Loops in ONNX graphs: what their bodies read of the graph around them survives whatever is done to it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from op_calls import Call
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

import dort_compare
from dort_compare.errors import OutOfRangeError, UnsupportedGraphError
from dort_compare.lowering import lower, registered, registry
from dort_compare.lowering.loops import loop
from dort_compare.lowering.survey import survey
from dort_compare.runtime import Program, SessionSettings, newest_opset
from dort_compare.runtime.opsets import OLDEST_OPSET

aten = torch.ops.aten
registered()


def powers(op: Any, x: Any) -> Any:
    """x^(2^3) and how often was squared; ``doubled`` is read from around, the constants are the model's."""
    doubled = op.Add(x, x)

    def body(i: Any, power: Any, count: Any) -> Any:
        twice = op.Div(op.Mul(op.Mul(power, power), doubled), op.Mul(x, 2))
        return twice, op.Add(count, op.Sub(op.Add(i, 1), i))

    power, count = loop(op, 3, [x, op.const(0)], body)
    return op.Add(power, op.cast(count, torch.float32))


@pytest.mark.parametrize("opset", [OLDEST_OPSET, newest_opset()])
def test_a_loop_hands_its_state_on(opset: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._TABLE, aten.tanh.default, powers)
    x = torch.tensor([1.0, -1.5, 0.5])
    (result,) = Call(aten.tanh.default, (x,), {}).on_onnx_runtime(opset)
    torch.testing.assert_close(result, x**8 + 3)


@pytest.mark.parametrize("in_body", [True, False])
def test_a_failed_lowering_takes_its_loops_back(in_body: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(op: Any, x: Any) -> Any:
        doubled = op.Add(x, x)

        def body(i: Any, value: Any) -> Any:
            value = op.Mul(value, doubled)
            if in_body:
                raise KeyError("a fault")
            return [value]

        loop(op, 3, [x], body)
        raise KeyError("a fault")

    monkeypatch.setitem(registry._TABLE, aten.tanh.default, broken)
    graph = make_fx(lambda x: (x * 2).tanh() + 1, tracing_mode="fake")(torch.ones(3))
    found = survey(graph, "inference", newest_opset())
    assert {node.name: reason for node, reason in found.refused.items()} == {"tanh": "KeyError: 'a fault'"}
    assert [node.op_type for node in found.graph] == ["Mul", "Add"]


def test_a_model_with_casts_around_bfloat16_keeps_its_loops() -> None:
    x = torch.randn(3, 3, dtype=torch.bfloat16)
    function = lambda x: torch.linalg.qr((x * 2).erf().float())[1].bfloat16().erf()  # noqa: E731
    lowered = lower(make_fx(lambda x: (function(x),), tracing_mode="fake")(x), "inference", newest_opset())
    program = Program(lowered.model, lowered.signature, SessionSettings(("cpu",)))
    assert program.model is not lowered.model
    torch.testing.assert_close(program(x), [function(x)])


class Whitened(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x)
        factor, _ = torch.linalg.cholesky_ex(y.mT @ y / len(y) + torch.eye(5))
        whitened = torch.linalg.solve_triangular(factor, y.mT, upper=False).mT
        q, r = torch.linalg.qr(whitened)
        return q @ r.tanh() + torch.linalg.slogdet(factor @ factor.mT).logabsdet


def test_a_comparison_sees_through_loops() -> None:
    report = dort_compare.compare(Whitened(), (torch.randn(9, 5),), backward=True, fallback=False)
    assert str(report).startswith("agree")


@pytest.mark.skipif(not hasattr(aten, "cholesky"), reason="torch 2.14 has left it out")
@pytest.mark.parametrize("number", [-1.0, 0.0, torch.nan])
def test_what_has_no_factor_ends_the_run_as_in_torch(number: float) -> None:
    x = torch.eye(3).repeat(2, 1, 1)
    x[1, 2, 2] = number
    call = Call(aten.cholesky.default, (x,), {})
    with pytest.raises(torch.linalg.LinAlgError):
        call()
    with pytest.raises(OutOfRangeError, match=r"aten.cholesky.default"):
        call.on_onnx_runtime(newest_opset())


def test_the_inverse_of_a_singular_factor_ends_the_run_as_in_torch() -> None:
    call = Call(aten.cholesky_inverse.default, (torch.tensor([[1.0, 0], [2, 0]]),), {})
    with pytest.raises(torch.linalg.LinAlgError):
        call()
    with pytest.raises(OutOfRangeError, match=r"aten.cholesky_inverse.default"):
        call.on_onnx_runtime(newest_opset())


@pytest.mark.parametrize(
    ("target", "argument", "reason"),
    [
        (aten.linalg_lu_factor_ex.default, {"pivot": False}, "without pivoting"),
        (aten.linalg_lu.default, {"pivot": False}, "without pivoting"),
        (aten.linalg_lu_factor_ex.default, {"check_errors": True}, "an error for what is singular"),
        (aten.linalg_inv_ex.default, {"check_errors": True}, "an error for what is singular"),
        (aten.linalg_cholesky_ex.default, {"check_errors": True}, "an error for what is not positive definite"),
    ],
)
def test_what_would_raise_is_refused(target: Any, argument: dict[str, bool], reason: str) -> None:
    with pytest.raises(UnsupportedGraphError, match=reason):
        Call(target, (torch.eye(3),), argument).lowered(newest_opset())
