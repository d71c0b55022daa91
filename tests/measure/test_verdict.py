"""Agree or diverge: over rows, over outputs, and over nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from of_function import Of
from torch import Tensor

from dort_compare import compare
from dort_compare.measure.distance.metrics import distance
from dort_compare.measure.outcome import OutcomeRow, outcome_rows
from dort_compare.measure.reach import Lineage, Reach
from dort_compare.measure.rows import Row
from dort_compare.measure.verdict import judge
from dort_compare.offline import check

ONE, TWO = torch.ones(2), torch.full((2,), 2.0)


def row(status: Any, name: str = "mul", **changes: Any) -> Row:
    measured: dict[str, Any] = {}
    if status != "unaligned":
        measured = {"inherited": distance(ONE, ONE if status == "ok" else TWO), "noise_floor": 1e-5}
    values = {"phase": "forward", "graph": 0, "fx_node": name, "call": name, "target": "aten.mul.Tensor"}
    given = {
        **values,
        "module": "mlp",
        "source": "model.py:7",
        "dtype": "float32",
        "shape": (2,),
        "status": status,
        **measured,
        **changes,
    }
    return Row(**given)


def outcomes(eager: Any, compiled: Any, **exact: Any) -> list[OutcomeRow]:
    return outcome_rows("debug", "output", {"y": eager} if eager is not None else {}, compiled, lambda: exact, None)


def test_values_that_are_ok_agree() -> None:
    assert judge([row("ok")], outcomes(ONE, {"y": ONE})) == ("agree", ())


def test_nothing_compared_is_no_agreement() -> None:
    for rows, results in ([], []), ([row("unaligned")], []), ([row("unaligned")], outcomes(ONE, {"y": ONE})):
        verdict, (first, *_) = judge(rows, results)
        assert verdict == "diverge"
        assert first.reason == "nothing was compared"


def test_what_ran_in_eager_torch_alone_was_not_compared() -> None:
    results = outcomes(ONE, {"y": ONE})
    verdict, (cause,) = judge([], results, fallbacks=2)
    assert (verdict, cause.reason) == (
        "diverge",
        "nothing was compared: all that was compiled ran in eager torch",
    )
    assert judge([row("ok")], results, fallbacks=2) == judge([], results) == ("agree", ())


def test_without_outputs_every_graph_needs_a_value_that_was_compared() -> None:
    rows = [row("ok"), row("unaligned", graph=1)]
    assert judge(rows, outcomes(ONE, {"y": ONE})) == ("agree", ())
    verdict, (cause,) = judge(rows, [])
    assert (verdict, cause.reason) == ("diverge", "nothing was compared of graph 1")


def test_calls_that_share_onnx_nodes_are_one_cause_and_others_are_not() -> None:
    made_by = {"a": ("v", "a"), "b": ("v", "b"), "c": ("c",), "d": ("c", "b")}
    _, causes = judge([row("diverges", name, onnx_nodes=nodes) for name, nodes in made_by.items()], [])
    assert [cause.fx_node for cause in causes] == ["a", "c"]
    assert causes[0].reason.endswith("; b departs too, made by some of the same ONNX nodes: v")
    assert causes[1].reason.endswith("; d departs too, made by some of the same ONNX nodes: c")
    _, causes = judge([row("diverges", "a", onnx_nodes=("v",)), row("diverges", "a", graph=1, onnx_nodes=("v",))], [])
    assert len(causes) == 2


def test_a_graph_of_values_that_torch_leaves_unset_is_not_silent() -> None:
    rows = [row("unaligned", onnx_value="empty", reason="unset"), row("ok", graph=1)]
    assert judge(rows, []) == ("agree", ())


def test_the_first_diverging_value_is_named_with_where_it_comes_from() -> None:
    verdict, (first, *_) = judge([row("ok"), row("diverges", "b"), row("inherits", "c"), row("diverges", "d")], [])
    assert verdict == "diverge"
    assert (first.fx_node, first.module, first.source) == ("b", "mlp", "model.py:7")
    assert first.reason == "max |torch - onnx| = 1 where 1e-05 is noise"


def test_every_call_that_departs_is_a_cause_once_and_what_is_not_stable_comes_first() -> None:
    rows = [
        row("diverges", "a"),
        row("diverges", "getitem", call="split"),
        row("diverges", "getitem_1", call="split"),
        row("diverges", "race", is_unstable=True, reason="changes from run to run"),
    ]
    _, causes = judge(rows, [])
    assert [cause.fx_node for cause in causes] == ["race", "a", "split"]
    assert causes[0].reason == "changes from run to run"


@pytest.mark.parametrize(("onnx_error", "side"), [(2.0, "ONNX"), (0.1, "torch")])
def test_the_reason_says_who_is_further_from_float64(onnx_error: float, side: str) -> None:
    _, (first, *_) = judge([row("diverges", torch_vs_float64=0.5, onnx_vs_float64=onnx_error)], [])
    assert f"{side} is further from float64" in first.reason


def test_nobody_is_further_where_nan_stands_on_one_side() -> None:
    gap = distance(ONE, torch.tensor([torch.nan, 1.0]))
    _, (first, *_) = judge([row("diverges", inherited=gap, torch_vs_float64=0.5, onnx_vs_float64=0.0)], [])
    assert first.to_json()["further_from_float64"] is None
    assert first.reason == "1 NaN in got where expected has numbers"


@pytest.mark.parametrize(("errors", "further", "right"), [((torch.inf, 0.0), "torch", "ONNX"),
                                                          ((0.0, torch.inf), "ONNX", "torch")])  # fmt: skip
def test_the_side_that_has_what_float64_has_is_right(errors: Any, further: str, right: str) -> None:
    gap = distance(ONE, torch.tensor([torch.nan, 1.0]))
    local = dict(zip(("local_torch_vs_float64", "local_onnx_vs_float64"), errors, strict=True))
    _, (first, *_) = judge([row("diverges", inherited=gap, local=gap, **local)], [])
    assert first.to_json()["further_from_float64"] == further
    assert first.reason == f"{gap.finding}; float64 has what {right} has"


def test_outputs_that_depart_although_every_value_agrees() -> None:
    verdict, (first, *_) = judge([row("ok")], outcomes(ONE, {"y": TWO}))
    assert verdict == "diverge"
    assert (first.phase, first.fx_node) == ("eager", "output y")
    assert "what is noise in a value that one graph hands on" in first.reason


LOST = torch.tensor([-torch.inf, 1.0])


def test_an_output_that_departs_by_noise_made_larger_is_laid_where_that_begins() -> None:
    lost = distance(ONE, LOST)
    right = distance(ONE, ONE)
    rows = [row("ok", "sigmoid"), row("inherits", "log", inherited=lost, local=right), row("inherits", "sum")]
    verdict, (first,) = judge(rows, outcomes(ONE, {"y": LOST}))
    assert verdict == "diverge"
    assert (first.fx_node, first.source) == ("log", "model.py:7")
    assert first.reason == (
        "1 inf in got where expected is finite, though right on torch's operands: it enlarges what is noise beside "
        "the largest element of these; output y departs"
    )
    assert judge([row("ok"), row("inherits", "log")], outcomes(ONE, {"y": ONE})) == ("agree", ())


def test_infinities_that_are_made_of_zeros_of_the_other_sign_are_told_as_such() -> None:
    """ONNX Runtime's sum of -0 is -0, torch's is 0."""
    x = torch.tensor([[-0.0, -0.0], [0.0, 1.0]])
    (cause,) = compare(Of(lambda x: 1 / x.sum(-1)), (x,)).causes
    assert cause.fx_node == "reciprocal"
    assert "1 inf of opposite sign, though right where it runs alone on the same operands" in cause.reason
    assert "a zero that it reads has the other sign" in cause.reason


def test_an_output_of_nothing_but_nan_is_laid_where_that_begins() -> None:
    nan = torch.full((2,), torch.nan)
    rows = [row("ok"), row("inherits", "div", inherited=distance(ONE, nan), local=distance(ONE, ONE))]
    _, (first,) = judge(rows, outcomes(ONE, {"y": nan}))
    assert first.fx_node == "div"
    assert first.reason.startswith("2 NaN in got where expected has numbers, though right on torch's operands")


@pytest.mark.parametrize(("read", "is_same"), [("ok", True), ("inherits", False), ("unaligned", False)])
def test_an_op_that_has_the_same_operands_enlarges_no_noise(read: Any, is_same: bool) -> None:
    gap, none = distance(ONE, LOST), distance(ONE, ONE)
    above = {"ok": {"inherited": none}, "inherits": {}, "unaligned": {"inherited": None}}[read]
    rows = [row(read, "add", **above), row("inherits", "div", inherited=gap, local=none, operands=("x", "add"))]
    _, (first,) = judge(rows, outcomes(ONE, {"y": LOST}))
    assert first.fx_node == "div"
    assert ("it enlarges what is noise" in first.reason) is not is_same
    assert ("behind the nodes that make these ONNX Runtime computes it otherwise" in first.reason) is is_same


class Related(Lineage):
    """Of graphs in which every value reaches one output, which is ``sum``, and no gradient."""

    def __init__(self) -> None:
        super().__init__([])

    def reached(self, index: int, *fx_nodes: str, run: int = 1) -> Reach:
        return Reach(0, ("y",), ())

    def operands(self, index: int, fx_node: str) -> tuple[str, ...]:
        return ()

    def is_result(self, index: int, fx_node: str) -> bool:
        return fx_node == "sum"

    def may_be(self, index: int, fx_node: str, kind: str, name: str) -> bool:
        return fx_node == "sum" and (kind, name) == ("output", "y")


def test_it_is_not_laid_at_a_value_that_does_not_reach_it() -> None:
    rows = [row("ok"), row("inherits", "log", local=distance(ONE, ONE))]
    gradient = outcome_rows("debug", "gradient", {"w": ONE}, {"w": TWO}, dict, None)
    assert judge(rows, gradient, Related())[1][0].fx_node == "gradient w"
    assert judge(rows, outcomes(ONE, {"y": TWO}), Related())[1][0].fx_node == "log"


def test_an_output_whose_departure_its_op_makes_within_its_own_floor_is_laid_there() -> None:
    found = {"inherited": distance(ONE, TWO), "local": distance(ONE, TWO), "noise_floor": 3.0}
    rows = [row("ok", "exp", **found), row("ok", "sum", **found)]
    _, (first,) = judge(rows, outcomes(ONE, {"y": TWO}), Related())
    assert (first.fx_node, first.source) == ("sum", "model.py:7")
    assert first.reason.startswith(
        "max |torch - onnx| = 1 on the same operands; what its roundings may add up to is 3, but output y departs, "
    )


def test_an_output_of_nothing_but_nan_is_laid_at_no_distance() -> None:
    found = {"inherited": distance(ONE, TWO), "local": distance(ONE, TWO), "noise_floor": 3.0}
    _, (first,) = judge([row("ok", "sum", **found)], outcomes(ONE, {"y": ONE * torch.nan}), Related())
    assert (first.fx_node, first.reason) == ("output y", "2 NaN in compiled where eager has numbers")


def test_an_output_is_not_laid_at_the_result_that_another_is() -> None:
    found = {"inherited": distance(ONE, TWO), "local": distance(ONE, TWO), "noise_floor": 3.0}
    other = outcome_rows("debug", "output", {"z": ONE}, {"z": TWO}, dict, None)
    _, (first,) = judge([row("ok", "sum", **found)], other, Related())
    assert first.fx_node == "output z"


def test_an_output_that_its_op_does_not_make_is_not_laid_there() -> None:
    small = {"inherited": distance(ONE, TWO), "local": distance(ONE, ONE + 0.1), "noise_floor": 3.0}
    _, (first,) = judge([row("ok", "sum", **small)], outcomes(ONE, {"y": TWO}), Related())
    assert first.fx_node == "output y"


def test_noise_explains_no_missing_output() -> None:
    _, (first,) = judge([row("ok"), row("inherits", "log")], outcomes(ONE, {}))
    assert (first.fx_node, first.reason) == ("output y", "only one side has it")


def test_another_backend_that_departs_is_not_laid_at_a_value_of_ours() -> None:
    (other,) = outcome_rows("inductor", "output", {"y": ONE}, {"y": TWO}, dict, None)
    _, (first,) = judge([row("ok"), row("inherits", "log")], [other])
    assert first.fx_node == "output y"


@pytest.mark.parametrize(("eager", "compiled"), [(ONE, {}), (None, {"y": ONE})])
def test_an_output_on_one_side_only_is_no_agreement(eager: Any, compiled: Any) -> None:
    verdict, (first, *_) = judge([row("ok")], outcomes(eager, compiled))
    assert verdict == "diverge"
    assert first.reason == "only one side has it"


def test_an_output_of_another_dtype_is_no_agreement() -> None:
    verdict, (first, *_) = judge([row("ok")], outcomes(ONE, {"y": ONE.double()}))
    assert verdict == "diverge"
    assert first.reason == "dtype float64 instead of float32"


def test_half_precision_is_measured_from_float64() -> None:
    exact = torch.tensor([1.0 + 2.0**-12], dtype=torch.float64)
    (found,) = outcomes(torch.tensor([1.0]).half(), {"y": torch.tensor([1.0 + 2.0**-9]).half()}, y=exact)
    assert found.ok
    assert found.torch_vs_float64 == 2.0**-12
    assert found.onnx_vs_float64 == 2.0**-9 - 2.0**-12
    assert not outcomes(torch.tensor([1.0]).half(), {"y": torch.tensor([1.1]).half()}, y=exact)[0].ok


def test_the_precision_of_autocast_sets_the_floor() -> None:
    def floor(precision: torch.dtype | None) -> float | None:
        return outcome_rows("debug", "gradient", {"w": ONE}, {"w": ONE}, dict, precision)[0].noise_floor

    assert floor(torch.bfloat16) == pytest.approx(4 * 2.0**-7)
    assert floor(None) == pytest.approx(1e-5)


@pytest.mark.parametrize("x", [torch.full((3,), torch.nan), torch.ones(0, 3)], ids=["NaN", "empty"])
def test_what_has_no_finite_number_is_not_compared(x: Tensor, tmp_path: Path) -> None:
    report = compare(Of(lambda x: x.exp().sin()), (x,), dump=tmp_path / "dump")
    of_dump = check(tmp_path / "dump")
    for found in (report, of_dump):
        assert found.verdict == "diverge"
        assert found.causes[0].reason.startswith("nothing was compared: all that was measured is empty or NaN")


def test_values_without_a_finite_number_are_counted() -> None:
    report = compare(Of(lambda x: (x / 0 - x / 0, x.exp())), (torch.ones(3),))
    assert report.verdict == "agree"
    assert "1 of them empty, or NaN throughout on one side or both" in str(report)


def test_infinities_and_graphs_without_numbers_beside_others_are_compared(tmp_path: Path) -> None:
    assert compare(Of(torch.log), (torch.zeros(3),)).verdict == "agree"

    def function(x: Tensor) -> Tensor:
        empty = x[:0].exp()
        torch._dynamo.graph_break()
        return torch.cat([empty.sin(), x.exp()]).sin()

    assert compare(Of(function), (torch.ones(3),), dump=tmp_path / "dump").verdict == "agree"
    assert check(tmp_path / "dump").verdict == "agree"
