"""How large the numbers are that an element is computed of, whatever the operands are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from of_function import Of
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing import assert_close

from dort_compare import compare
from dort_compare.lowering import registered, registry
from dort_compare.measure.noise.inner_magnitude import inner_magnitude
from dort_compare.trace import Replay

aten = torch.ops.aten
X = torch.tensor([[-3.0, 0.5], [20.0, -0.1]])


def magnitude(function: Callable[..., torch.Tensor], *operands: torch.Tensor) -> torch.Tensor | None:
    graph = make_fx(function)(*operands).graph
    call = next(node for node in graph.nodes if node.op == "call_function")
    names = [node.name for node in graph.find_nodes(op="placeholder")]
    found = inner_magnitude(Replay(dict(zip(names, operands, strict=True))), call, function(*operands).shape)
    return None if found is None else found.expand(function(*operands).shape)


def test_it_is_the_product_of_operands_and_numbers() -> None:
    assert_close(magnitude(aten.silu.default, X), torch.tensor([[3.0, 1.0], [20.0, 1.0]]))
    scaled = magnitude(lambda x, y: aten.addcmul.default(x, x, y, value=4.0), X, torch.tensor([2.0, 0.1]))
    assert_close(scaled, torch.tensor([[72.0, 4.0], [3200.0, 4.0]]))
    assert_close(magnitude(aten.silu_backward.default, X * 1e-6, X), X.abs() * 1e-6 * X.abs().clamp(min=1))


def test_operands_may_be_booleans_or_complex_or_of_another_shape() -> None:
    assert_close(magnitude(aten.xlogy.Tensor, X > 0, X.abs()), X.abs().clamp(min=1))
    assert_close(magnitude(aten.abs.default, torch.tensor([3 + 4j])), torch.tensor([5.0]))
    scale, zero = torch.tensor([0.1, 7.0]), torch.zeros(2, dtype=torch.int32)
    args = (torch.ones(1, 2, 3, 3), scale, zero)
    found = magnitude(lambda x, s, z: aten.fake_quantize_per_channel_affine_cachemask(x, s, z, 1, -128, 127)[0], *args)
    assert found is not None
    assert (found >= 7).all()


@pytest.mark.parametrize("function", [torch.xlogy, torch.atan2, torch.special.xlog1py])
def test_what_departs_of_a_boolean_operand_is_judged(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    target = {torch.xlogy: aten.xlogy.Tensor, torch.atan2: aten.atan2.default}.get(
        function, aten.special_xlog1py.default
    )
    right = registered()[target]

    def wrong(op: Any, *args: Any) -> Any:
        return op.Mul(right(op, *args), 1 + 2**-22)

    monkeypatch.setitem(registry._TABLE, target, wrong)
    numbers, truths = torch.rand(64) + 0.5, torch.rand(64) > 0.5
    assert compare(Of(function), (truths, numbers)).verdict == "agree"
