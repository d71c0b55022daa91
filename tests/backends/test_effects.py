"""Checks of factorizations, which AOTAutograd keeps in order by tokens: graphs run whole, and errors are torch's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dort_compare import DebugBackend, compare
from dort_compare.cli import main

SINGULAR = torch.eye(3)
SINGULAR[2, 2] = 0
BATCH = torch.stack([torch.eye(3), SINGULAR])


def solve(a: torch.Tensor) -> torch.Tensor:
    return torch.linalg.solve(a, torch.ones(3, 2))


def several(a: torch.Tensor) -> torch.Tensor:
    return solve(a @ a.mT) + torch.linalg.cholesky(a @ a.mT)[..., :2] + torch.linalg.inv(a)[..., :2]


@pytest.mark.parametrize("function", [torch.linalg.inv, torch.linalg.cholesky, solve, torch.linalg.lu_factor, several])
@pytest.mark.parametrize("singular", [SINGULAR, BATCH])
@pytest.mark.parametrize("dynamic", [False, True])
def test_the_error_is_torchs_and_all_else_runs_in_onnx_runtime(
    function: Any, singular: torch.Tensor, dynamic: bool, said_by: Any
) -> None:
    compiled = torch.compile(function, backend="dort", dynamic=dynamic, options={"fallback": False, "cache": False})
    regular = singular + torch.eye(3)
    torch.testing.assert_close(compiled(regular), function(regular))
    with pytest.raises(RuntimeError) as right:
        function(singular)
    with pytest.raises(RuntimeError) as found:
        compiled(singular)
    assert (found.type, str(found.value)) == (right.type, str(right.value))
    assert said_by("dort_compare") == []


class Solved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(3, 3) / 8 + torch.eye(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return several(self.weight) @ x


def test_a_model_trains_and_is_compared_and_so_is_its_dump(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = compare(Solved(), (torch.randn(2, 4),), backward=True, dump=tmp_path)
    assert report.verdict == "agree", str(report)
    assert not report.fallbacks
    with pytest.raises(SystemExit) as ended:
        main(["check", str(tmp_path)])
    assert ended.value.code == 0, capsys.readouterr().out


def test_tokens_enter_no_model() -> None:
    backend = DebugBackend()
    torch.compile(solve, backend=backend)(torch.eye(3))
    (graph,) = backend.graphs
    assert [value.name for value in graph.onnx_model.graph.input] == [
        node.name for node in graph.graph_module.graph.find_nodes(op="placeholder")
    ]
    assert len(graph.onnx_model.graph.input) == 1


def test_checks_keep_their_order_around_what_runs_in_torch() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.linalg.cholesky(nn.functional.dropout(x, 1e-9)) + torch.linalg.inv(y)

    compiled = torch.compile(function, backend="dort", options={"cache": False})
    with pytest.raises(torch.linalg.LinAlgError, match="cholesky"):
        compiled(-torch.eye(3), SINGULAR)
    with pytest.raises(torch.linalg.LinAlgError, match="inv"):
        compiled(torch.eye(3), SINGULAR)


@pytest.mark.parametrize("first", [True, False])
def test_what_prints_keeps_its_place_among_checks(first: bool, capfd: pytest.CaptureFixture[str]) -> None:
    show = torch._higher_order_ops.print

    def function(x: torch.Tensor) -> torch.Tensor:
        if first:
            show("seen {}", x.sum())
        y = torch.linalg.inv(x)
        if not first:
            show("seen {}", x.sum())
        return y

    compiled = torch.compile(function, backend="dort", options={"cache": False})
    assert torch.equal(compiled(torch.eye(3)), torch.eye(3))
    assert "seen" in capfd.readouterr().out
    with pytest.raises(torch.linalg.LinAlgError):
        compiled(SINGULAR)
    assert ("seen" in capfd.readouterr().out) is first


def test_a_kernel_that_fails_behind_a_check_is_not_told() -> None:
    compiled = torch.compile(
        lambda a: torch.cholesky_inverse(torch.linalg.cholesky(a)), backend="dort", options={"cache": False}
    )
    with pytest.raises(torch.linalg.LinAlgError) as caught:
        compiled(SINGULAR)
    assert caught.value.__suppress_context__


def test_the_reference_evaluator_computes_factorizations(tmp_path: Path) -> None:
    torch.compile(torch.linalg.cholesky, backend=DebugBackend(dump=tmp_path))(SPD)
    with pytest.raises(SystemExit) as ended:
        main(["check", str(tmp_path), "--engine", "reference"])
    assert ended.value.code == 0


SPD = torch.eye(3) + 0.1
