"""Parts of ONNX models: the values of the whole, from its own or from given ones, and nothing kept for longer."""

from __future__ import annotations

import weakref
from typing import Any

import onnx
import pytest
import torch
from torch import Tensor, nn

from dort_compare.align import values_of_fx_nodes
from dort_compare.compiled import graph_run
from dort_compare.errors import ExecutionError
from dort_compare.trace import onnx_values
from dort_compare.trace.four_executions import executions
from dort_compare.trace.graph_run import EngineName
from dort_compare.trace.local_run import LocalRun
from dort_compare.trace.onnx_run import OnnxRun
from dort_compare.trace.parts import Parts
from dort_compare.trace.stand_ins import StandIns

CPU = [("CPUExecutionProvider", {})]


def parts(text: str) -> Parts:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> {text}')
    return Parts(model, CPU, torch.device("cpu"))


CHAIN = "g (float[3] x) => (float[3] d) { a = Exp(x)  b = Neg(a)  c = Add(b, x)  d = Mul(c, a) }"
CROSSED = "g (float[3] x) => (float[3] d) { b = Neg(x)  a = Exp(b)  c = Add(b, x)  d = Mul(c, a) }"
X = torch.tensor([0.5, -1.0, 2.0])
INPUTS = {"x": X}


def test_a_run_on_its_own_values_gives_each_once_in_any_order() -> None:
    run = OnnxRun(parts(CHAIN), INPUTS, ["c", "a", "d"])
    torch.testing.assert_close(run.values(["c"])["c"], X - X.exp())
    torch.testing.assert_close(run.values(["a"])["a"], X.exp())
    torch.testing.assert_close(run.values(["d"])["d"], (X - X.exp()) * X.exp())


def test_values_are_freed_after_their_last_reader() -> None:
    run = OnnxRun(parts(CHAIN), INPUTS, ["a", "b", "c", "d"])
    refs = {}
    for name in "abcd":
        refs[name] = weakref.ref(run.values([name])[name])
        alive = {key for key, ref in refs.items() if ref() is not None}
        assert alive <= {"a": {"a"}, "b": {"a", "b"}, "c": {"a", "c"}, "d": set()}[name]


def test_local_values_come_of_the_given_operands_alone() -> None:
    local = LocalRun(parts(CHAIN), INPUTS, ["a", "b", "c", "d"])
    given = {"a": torch.full((3,), 2.0), "b": torch.full((3,), 5.0), "c": torch.full((3,), 7.0)}
    for name, value in given.items():
        local.give(name, value)
    first, second = local.values(["a", "b", "c"], repeats=2)
    assert all(torch.equal(first[name], second[name]) for name in first)
    torch.testing.assert_close(first["a"], X.exp())
    assert torch.equal(first["b"], torch.full((3,), -2.0))
    assert torch.equal(first["c"], 5 + X)
    (last,) = local.values(["d"])
    assert torch.equal(last["d"], torch.full((3,), 14.0))
    assert local._given == {}


def test_values_that_no_fx_node_stands_for_are_computed_on_the_way() -> None:
    local = LocalRun(parts(CHAIN), INPUTS, ["a", "d"])
    local.give("a", torch.full((3,), 2.0))
    (found,) = local.values(["a", "d"])
    torch.testing.assert_close(found["d"], (X - 2) * 2)


def test_what_stands_for_a_later_node_is_computed_on_the_way_to_an_earlier_one() -> None:
    """The mean that a call returns second is what its first result, the variance, goes through."""
    local = LocalRun(parts(CROSSED), INPUTS, ["a", "b", "c", "d"])
    (alone,) = local.values(["a"])
    torch.testing.assert_close(alone["a"], (-X).exp())
    local.give("a", torch.full((3,), 2.0))
    local.give("b", torch.full((3,), 5.0))
    local.give("c", torch.full((3,), 7.0))
    (found,) = local.values(["b", "c", "d"])
    assert torch.equal(found["b"], -X)
    assert torch.equal(found["c"], 5 + X)
    assert torch.equal(found["d"], torch.full((3,), 14.0))


def test_an_earlier_and_a_later_node_are_computed_together_each_from_its_operands() -> None:
    local = LocalRun(parts(CROSSED), INPUTS, ["a", "b", "c", "d"])
    for name, value in {"a": 2.0, "b": 5.0, "c": 7.0}.items():
        local.give(name, torch.full((3,), value))
    (found,) = local.values(["a", "b", "c", "d"])
    torch.testing.assert_close(found["a"], (-X).exp())
    assert torch.equal(found["c"], 5 + X)


def together_and_apart(body: str, order: str, given: dict[str, float], **inputs: Tensor) -> None:
    """What the nodes make of the values given is the same in one window and in one each."""
    names, found = list(order), []
    for windows in ([names], [[name] for name in names]):
        local = LocalRun(parts(body), INPUTS | inputs, names)
        values: dict[str, Any] = {}
        for window in windows:
            for name in window:
                local.give(name, torch.full((3,), given[name]))
            values |= local.values(window)[0]
        found.append(values)
    torch.testing.assert_close(*found)


def test_a_node_on_the_way_to_two_reads_for_each_what_comes_before_that_one() -> None:
    body = "g (float[3] x) => (float[3] d) { c = Neg(x)  n = Exp(c)  a = Abs(n)  d = Mul(n, c) }"
    together_and_apart(body, "acd", {"a": 2.0, "c": 5.0, "d": 7.0})


def test_a_nested_graph_on_the_way_reads_what_is_made_there() -> None:
    body = """g (bool flag, float[3] x) => (float[3] d) {
        c = Neg(x)
        a = If (flag) <then_branch = yes () => (float[3] t) { t = Exp(c) },
                       else_branch = no () => (float[3] e) { e = Identity(x) }>
        d = Mul(c, x)
    }"""
    together_and_apart(body, "acd", {"a": 2.0, "c": 5.0, "d": 7.0}, flag=torch.tensor(True))


BRANCHES = """g (bool flag, float[3] x) => (float[3] y) {
    a = Exp(x)
    b = If (flag) <
        then_branch = yes () => (float[3] t) { t = Neg(a) },
        else_branch = no () => (float[3] e) { e = Identity(x) }
    >
    y = Add(b, a)
}"""


@pytest.mark.parametrize("flag", [True, False])
def test_what_nested_graphs_read_from_outside_is_fed(flag: bool) -> None:
    run = OnnxRun(parts(BRANCHES), {"flag": torch.tensor(flag), "x": X}, ["a", "b", "y"])
    found = [run.values([name])[name] for name in ("a", "b", "y")]
    torch.testing.assert_close(found[1], -X.exp() if flag else X)
    torch.testing.assert_close(found[2], found[0] + found[1])


SEQUENCE = """g (float[4] x) => (float[4] y) {
    a = Exp(x)
    s = SplitToSequence <keepdims = 0> (a)
    b = Neg(x)
    i = Constant <value_int = 1> ()
    e = SequenceAt(s, i)
    y = Mul(b, e)
}"""


def test_sequences_do_not_cross_parts() -> None:
    x = torch.tensor([0.5, -1.0, 2.0, 1.0])
    run = OnnxRun(parts(SEQUENCE), {"x": x}, ["a", "b", "y"])
    run.values(["a"])
    run.values(["b"])
    torch.testing.assert_close(run.values(["y"])["y"], -x * x[1].exp())


LOOP = """g (float[4] x) => (float[8] y) <int64 n = {2}, bool c = {1}> {
    a = Exp(x)
    e = SequenceEmpty()
    s = Loop (n, c, e) <body = body (int64 i, bool ci, si) => (bool co, so) {
        co = Identity(ci)
        so = SequenceInsert(si, a)
    }>
    y = ConcatFromSequence <axis = 0> (s)
}"""


def test_sequences_of_a_body_do_not_cross_parts_where_no_type_is_declared() -> None:
    x = torch.tensor([0.5, -1.0, 2.0, 1.0])
    run = OnnxRun(parts(LOOP), {"x": x}, ["a", "y"])
    run.values(["a"])
    torch.testing.assert_close(run.values(["y"])["y"], x.exp().repeat(2))
    assert parts(LOOP).untensored == {"e", "s"}


def test_a_failing_node_does_not_take_the_others_of_its_window_along() -> None:
    local = LocalRun(parts("g (float[3] x) => (float[3] c) { a = Exp(x)  c = Add(a, x) }"), INPUTS, ["a", "c"])
    local.give("a", torch.ones(2, 7))
    (found,) = local.values(["a", "c"])
    torch.testing.assert_close(found["a"], X.exp())
    assert isinstance(found["c"], ExecutionError)


SHOWN = """g (float[2, 3] x) => (float[3, 2] e) <int64[1] flat = {6}, int64[2] again = {0, -1}> {
    a = Exp(x)
    b = Reshape(a, flat)
    c = Identity(b)
    d = Neg(c)
    k = Identity(flat)
    e = Reshape(d, again)
}"""
PAGE = torch.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize("engine", ["ort", "reference"])
def test_what_only_shows_another_value_shares_its_memory(engine: EngineName) -> None:
    model = parts(SHOWN)
    model.engine = engine
    whole = model.run(range(6), list("abcdke"), {"x": PAGE})[0]
    torch.testing.assert_close(whole["c"], PAGE.exp().flatten())
    assert whole["a"].data_ptr() == whole["b"].data_ptr() == whole["c"].data_ptr()
    assert whole["d"].data_ptr() == whole["e"].data_ptr() != whole["a"].data_ptr()
    assert (whole["e"].shape, whole["k"].tolist()) == ((6, 1), [6])
    (last,) = model.run([2], ["c"], {"b": PAGE})
    assert torch.equal(last["c"], PAGE)
    assert [model.root(name) for name in "abcde"] == ["a", "a", "a", "d", "d"]


def test_what_is_shown_is_what_its_node_is_fed() -> None:
    """Also where another node makes a value of that name, and where it is transposed, or a parameter."""
    given = {"a": PAGE.t().contiguous().t().requires_grad_(), "b": -PAGE.flatten(), "c": PAGE.flatten() + 1}
    local = LocalRun(parts(SHOWN), {"x": PAGE}, list("abcde"))
    for name, value in given.items():
        local.give(name, value)
    (found,) = local.values(["a", "b", "c", "d"])
    torch.testing.assert_close(found["a"], PAGE.exp())
    assert torch.equal(found["b"], PAGE.flatten())
    assert not found["b"].requires_grad
    assert torch.equal(found["c"], given["b"])
    assert torch.equal(found["d"], -given["c"])


@pytest.mark.parametrize("engine", ["ort", "reference"])
def test_nodes_need_not_be_in_order(engine: EngineName) -> None:
    model = parts(SHOWN).model
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(nodes if engine == "reference" else nodes[::-1])
    found = Parts(model, CPU, torch.device("cpu"), engine)
    values = found.run(range(6), list("ecdab"), {"x": PAGE})[0]
    torch.testing.assert_close(values["c"], PAGE.exp().flatten())
    torch.testing.assert_close(values["e"], -PAGE.exp().reshape(6, 1))
    assert list(values) == list("ecdab")


def test_a_value_may_have_any_name() -> None:
    """Also one that a part would give to a shape, or to what it makes beside what it is fed."""
    model, names = parts(SHOWN).model, {"flat": "b/shape", "a": "b/shape_", "k": "c/made"}
    for node in model.graph.node:
        for field in (node.input, node.output):
            field[:] = [names.get(name, name) for name in field]
    model.graph.initializer[0].name = names["flat"]
    feeds = {"x": PAGE, "b": torch.full((6,), 5.0), "c": torch.full((6,), 7.0)}
    named = Parts(model, CPU, torch.device("cpu"))
    (found,) = named.run(range(6), ["b", "c", "d", "c/made"], feeds, {2: {"b"}, 3: {"c"}})
    torch.testing.assert_close(found["b"], PAGE.exp().flatten())
    assert torch.equal(found["c"], feeds["b"])
    assert torch.equal(found["d"], -feeds["c"])
    assert found["c/made"].tolist() == [6]


def test_a_passage_without_operands_is_refused() -> None:
    model = parts(CHAIN).model
    model.graph.node[1].op_type = "Identity"
    del model.graph.node[1].input[:]
    broken = Parts(model, CPU, torch.device("cpu"))
    assert broken.root("b") == "b"
    with pytest.raises(ExecutionError, match="ONNX Runtime failed"):
        broken.run(range(4), ["b"], {"x": X})


def test_a_circle_is_refused() -> None:
    model = parts("g (float[3] x) => (float[3] a) { a = Identity(b)  b = Identity(a) }")
    model.root("a")
    with pytest.raises(ExecutionError, match="ONNX Runtime failed"):
        model.run([0, 1], ["a"], {})


def test_a_missing_input_is_named() -> None:
    with pytest.raises(ExecutionError, match="no value for x"):
        OnnxRun(parts(CHAIN), {}, ["a"]).values(["a"])


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.linear(x).split(3, -1)
        return a.softmax(-1) * b + b.sort(-1)[0]


@pytest.mark.parametrize("memory", [0, 64])
@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_the_values_are_those_of_the_whole_model(graphs_of: Any, memory: int, autocast: torch.dtype | None) -> None:
    net = Net()

    def model(x: Tensor) -> Tensor:
        with torch.autocast("cpu", autocast or torch.bfloat16, enabled=autocast is not None):
            return net(x)

    for graph in graphs_of(model, torch.randn(4, 6)):
        run = graph_run(graph)
        stands = {fx_node: value.name for fx_node, value in values_of_fx_nodes(run.onnx_model).items()}
        whole = dict(onnx_values(run.onnx_model, run.inputs, run.providers))
        seen = 0
        for executed in executions(run, StandIns(stands), memory):
            name = stands.get(executed.step.node.name)
            if name is not None:
                assert executed.own is not None
                assert torch.equal(executed.own, whole[name])
                seen += 1
        assert seen
