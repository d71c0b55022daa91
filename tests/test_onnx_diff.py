"""Two ONNX models that share no names: what is paired, what is blamed, and what must not matter."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from graph_text import model
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from dort_compare.errors import DortError, ExecutionError, UsageError
from dort_compare.onnx_diff import diff
from dort_compare.report.diff import Diff
from dort_compare.scalars import as_tensor
from dort_compare.trace.graph_run import EngineName

WIDTH = 8


def weights(*names: str) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {name: generator.standard_normal((WIDTH, WIDTH)).astype(np.float32) for name in names}


ATTENTION = """
    agraph (float[4, 8] x) => (float[4, 8] y) {
        q = MatMul(x, wq)
        k = MatMul(x, wk)
        v = MatMul(x, wv)
        kt = Transpose<perm = [1, 0]>(k)
        scores = MatMul(q, kt)
        scaled = Mul(scores, scale)
        masked = Add(scaled, mask)
        p = Softmax(masked)
        mixed = MatMul(p, v)
        projected = MatMul(mixed, wo)
        summed = Add(projected, x)
        squared = Mul(summed, summed)
        wave = Tanh(summed)
        y = Sub(squared, wave)
    }"""
CONSTANTS = {
    **weights("wq", "wk", "wv", "wo"),
    "scale": np.float32(0.25),
    "mask": np.triu(np.full((4, 4), np.finfo(np.float32).min, dtype=np.float32), 1),
}


def attention() -> onnx.ModelProto:
    return model(ATTENTION, **CONSTANTS)


def node_of(graph: onnx.GraphProto, result: str) -> onnx.NodeProto:
    return next(node for node in graph.node if result in node.output)


def shuffled(original: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """The same model, nodes in another order in which they can run, every inner name another, initializers mixed."""
    rng = random.Random(seed)
    copy = onnx.ModelProto()
    copy.CopyFrom(original)
    nodes, done = list(copy.graph.node), {""}
    done |= {value.name for value in (*copy.graph.input, *copy.graph.initializer)}
    ordered = []
    while nodes:
        ready = [node for node in nodes if done.issuperset(node.input)]
        chosen = rng.choice(ready)
        nodes.remove(chosen)
        ordered.append(chosen)
        done.update(chosen.output)
    tensors = list(copy.graph.initializer)
    rng.shuffle(tensors)
    names = {name: f"v{i}" for i, name in enumerate(sorted(done - {""}, key=lambda _: rng.random()))}
    for node in ordered:
        node.name = ""
        node.input[:] = [names.get(name, "") for name in node.input]
        node.output[:] = [names.get(name, "") for name in node.output]
    for value in (*copy.graph.input, *copy.graph.output, *tensors):
        value.name = names[value.name]
    copies = [onnx.TensorProto.FromString(t.SerializeToString()) for t in tensors]
    kept = [onnx.NodeProto.FromString(n.SerializeToString()) for n in ordered]
    del copy.graph.node[:], copy.graph.initializer[:], copy.graph.value_info[:]
    copy.graph.node.extend(kept)
    copy.graph.initializer.extend(copies)
    return copy


def with_copies(original: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """The same model with an Identity, a cast there and back, or neither, behind values, and additions commuted."""
    rng = random.Random(seed)
    copy = onnx.ModelProto()
    copy.CopyFrom(original)
    outputs = {value.name for value in copy.graph.output}
    nodes, latest = [], {}
    for node in original.graph.node:
        new = onnx.NodeProto()
        new.CopyFrom(node)
        new.input[:] = [latest.get(name, name) for name in node.input]
        if node.op_type in ("Add", "Mul") and rng.random() < 0.5:
            new.input[:] = list(reversed(new.input))
        nodes.append(new)
        (result,) = node.output
        kind = rng.randrange(3)
        if result in outputs or not kind:
            continue
        latest[result] = f"{result}_copy"
        if kind == 1:
            nodes.append(helper.make_node("Identity", [result], [latest[result]]))
        else:
            nodes.append(helper.make_node("Cast", [result], [f"{result}_wide"], to=TensorProto.DOUBLE))
            nodes.append(helper.make_node("Cast", [f"{result}_wide"], [latest[result]], to=TensorProto.FLOAT))
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy


def partners(found: Diff) -> dict[str, str]:
    return {row.pair.second: row.pair.first for row in found.rows}


def change(result: str, **fields: object) -> Callable[[onnx.GraphProto], None]:
    """A fault: another operator, operands in another order, another attribute."""

    def plant(graph: onnx.GraphProto) -> None:
        node = node_of(graph, result)
        if "op_type" in fields:
            node.op_type = str(fields["op_type"])
            del node.attribute[:]
        if "input" in fields:
            node.input[:] = fields["input"]  # type: ignore[assignment]
        if "axis" in fields:
            node.attribute.append(helper.make_attribute("axis", fields["axis"]))

    return plant


FAULTS = {
    "operator": ("wave", change("wave", op_type="Sigmoid")),
    "operands swapped": ("y", change("y", input=["wave", "squared"])),
    "axis": ("p", change("p", axis=0)),
    "mask lost": ("masked", change("masked", op_type="Identity", input=["scaled"])),
    "another weight": ("v", change("v", input=["x", "wo"])),
    "residual lost": ("summed", change("summed", op_type="Identity", input=["projected"])),
    "sum for difference": ("y", change("y", op_type="Add")),
    "scores before the mask": ("scaled", change("scaled", op_type="Div")),
    "keys before the mask": ("k", change("k", input=["x", "wo"])),
}


def test_a_model_agrees_with_itself_and_every_value_is_paired() -> None:
    found = diff(attention(), attention())
    assert found.verdict == "agree"
    assert all(first == second for second, first in partners(found).items())
    assert not found.findings.unpaired
    assert {row.status for row in found.rows} == {"equal"}


@settings(max_examples=8)
@given(st.integers(0, 2**31))
def test_names_order_copies_and_commuted_additions_do_not_matter(seed: int) -> None:
    first = attention()
    found = diff(first, shuffled(with_copies(first, seed), seed))
    assert found.verdict == "agree", str(found)
    assert set(partners(found).values()) >= {name for node in first.graph.node for name in node.output}
    assert not [value for value in found.findings.unpaired if value.model == "first"]


@settings(max_examples=8)
@given(st.integers(0, 2**31), st.sampled_from(sorted(FAULTS)))
def test_a_planted_fault_is_named_whatever_the_names_and_the_order(seed: int, fault: str) -> None:
    place, plant = FAULTS[fault]
    wrong = attention()
    plant(wrong.graph)
    found = diff(attention(), shuffled(wrong, seed))
    assert found.verdict == "diverge"
    assert [cause.row.pair.first for cause in found.findings.causes] == [place], str(found)


@settings(max_examples=8)
@given(st.integers(0, 2**31), st.sampled_from(sorted(FAULTS)))
def test_a_planted_fault_is_named_behind_copies(seed: int, fault: str) -> None:
    place, plant = FAULTS[fault]
    wrong = attention()
    plant(wrong.graph)
    found = diff(attention(), with_copies(wrong, seed))
    assert found.verdict == "diverge"
    assert [cause.row.pair.first for cause in found.findings.causes] == [place], str(found)


def test_three_faults_are_all_named() -> None:
    wrong = attention()
    for name in ("axis", "operator", "another weight"):
        FAULTS[name][1](wrong.graph)
    found = diff(attention(), shuffled(wrong, 1))
    assert {cause.row.pair.first for cause in found.findings.causes} == {"p", "wave", "v"}, str(found)


def test_a_constant_that_is_off_is_named_itself() -> None:
    other = model(ATTENTION, **{**CONSTANTS, "scale": np.float32(0.25 * 1.001)})
    found = diff(attention(), shuffled(other, 3))
    assert [cause.row.pair.first for cause in found.findings.causes] == ["scale"], str(found)


def test_bits_lost_between_two_casts_are_found() -> None:
    text = ATTENTION.replace("wave = Tanh(summed)", "h = Cast<to = 10>(summed)\n s = Cast<to = 1>(h)\n wave = Tanh(s)")
    found = diff(attention(), model(text, **CONSTANTS))
    assert found.first_divergence is not None
    assert found.first_divergence.row.pair.second == "s", str(found)


ROUNDED_TWICE = """m (float[6,8] x, float[6,8] w, float[6,8] p, float[6,8] q) => (float[6,8] y, float[6,8] z) {{
    narrow = Cast<to = 10>(x)
    wide = Cast<to = 1>(narrow)
    {0}
    y = Mul(a, p)
    z = Mul(b, q)
}}"""


def test_expressions_that_are_one_but_for_a_cast_are_told_apart_by_their_content() -> None:
    plain, rounded = "a = Sub(w, x)", "b = Sub(w, wide)"
    one, other = (model(ROUNDED_TWICE.format("\n".join(order))) for order in ((plain, rounded), (rounded, plain)))
    found = diff(one, other)
    assert found.verdict == "agree", str(found)
    assert partners(found) == {name: name for name in partners(found)}


ROUNDED = """m (float[4,8] x) => (float[4,8] y) {{
    turned = Transpose<perm = [1, 0]>(w)
    narrow = Cast<to = {0}>(turned)
    flat = Reshape(narrow, sizes)
    wide = Cast<to = 1>(flat)
    scaled = Mul(x, wide)
    wave = Tanh(scaled)
    y = Add(wave, x)
}}"""
WORN = {"w": np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32), "sizes": np.int64([4, 8])}
HALVES = [TensorProto.FLOAT16, TensorProto.BFLOAT16]


def constants_folded(original: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """The model as ONNX Runtime's basic optimizations leave it."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folder / "folded.onnx")
    ort.InferenceSession(original.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(folder / "folded.onnx")


@pytest.mark.parametrize("half", HALVES)
def test_a_constant_folded_behind_casts_that_lose_digits_stands_for_what_was_rounded(half: int, tmp_path: Path) -> None:
    original = model(ROUNDED.format(half), **WORN)
    folded = constants_folded(original, tmp_path)
    assert [tensor.name for tensor in folded.graph.initializer] == ["wide"]
    found = diff(original, folded)
    assert found.verdict == "agree", str(found)
    assert next(row.pair.first for row in found.rows if row.pair.second == "wide" and row.pair.is_main) == "wide"
    assert diff(folded, original).verdict == "agree"


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("fault", ["wide", "wave"])
def test_a_fault_behind_what_was_folded_is_named_first(fault: str, half: int, tmp_path: Path) -> None:
    original = model(ROUNDED.format(half), **WORN)
    wrong = constants_folded(original, tmp_path)
    if fault == "wave":
        node_of(wrong.graph, "wave").op_type = "Atan"
    else:
        (tensor,) = wrong.graph.initializer
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(1.05), "wide"))
    found = diff(original, wrong)
    assert found.first_divergence is not None
    assert found.first_divergence.row.pair.second == fault, str(found)


def test_another_decomposition_agrees() -> None:
    fused = (
        "agraph (float[4, 8] x) => (float[4, 8] y) { h = MatMul(x, w)\n y = LayerNormalization<epsilon = 1e-5>(h, g) }"
    )
    steps = """agraph (float[4, 8] x) => (float[4, 8] y) {
        h = Gemm<transB = 1>(x, wt)
        mean = ReduceMean<keepdims = 1>(h, last)
        d = Sub(h, mean)
        dd = Mul(d, d)
        var = ReduceMean<keepdims = 1>(dd, last)
        shifted = Add(var, eps)
        root = Sqrt(shifted)
        normal = Div(d, root)
        y = Mul(normal, g)
    }"""
    w, g = weights("w")["w"], np.linspace(0.5, 2, WIDTH).astype(np.float32)
    first = model(fused, w=w, g=g)
    constants = {"wt": w.T.copy(), "g": g, "last": np.array([-1]), "eps": np.float32(1e-5)}
    found = diff(first, model(steps, **constants))
    assert found.verdict == "agree", str(found)
    assert {"h", "y"} <= set(partners(found).values())
    reasons = {value.name: value.reason for value in found.findings.unpaired}
    assert reasons["var"].startswith("a step on the way to 'y'")
    wrong = diff(first, model(steps, **{**constants, "eps": np.float32(1e-1)}))
    assert wrong.first_divergence is not None
    assert wrong.first_divergence.row.pair.second == "y", str(wrong)
    assert any("Sqrt" in node for node in wrong.first_divergence.nodes[1])


FOLDED = """
    agraph (float[1, 4, 6, 6] x) => (float[1, 4, 6, 6] y) {
        c = Conv(x, w1, b1)
        r = Relu(c)
        d = Conv(r, w2, b2)
        s = Add(d, r)
        y = Tanh(s)
    }"""
UNFOLDED = FOLDED.replace("c = Conv(x, w1, b1)", "h = Conv(x, w1, b1)\n c = BatchNormalization(h, g, o, m, v)").replace(
    "d = Conv(r, w2, b2)", "k = Conv(r, w2, b2)\n d = BatchNormalization(k, g, o, m, v)"
)


def normalized(*wrong: str) -> dict[str, np.ndarray]:
    """Constants of two convolutions, each with its normalization; those named ``wrong`` are off."""
    generator = np.random.default_rng(1)
    drawn = {name: generator.standard_normal(4) for name in ("b1", "b2", "g", "o", "m", "v")}
    drawn |= {name: generator.standard_normal((4, 4, 1, 1)) for name in ("w1", "w2")}
    drawn["v"] = 0.5 + drawn["v"] ** 2
    return {name: (value + (name in wrong)).astype(np.float32) for name, value in drawn.items()}


def folded() -> dict[str, np.ndarray]:
    given = normalized()
    scale = given["g"] / np.sqrt(given["v"] + 1e-5)
    weights = {name: given[name] * scale[:, None, None, None] for name in ("w1", "w2")}
    return weights | {name: (given[name] - given["m"]) * scale + given["o"] for name in ("b1", "b2")}


def off(result: str) -> onnx.ModelProto:
    """The model with its normalizations, of which the one that makes ``result`` has another epsilon."""
    other = model(UNFOLDED, **normalized())
    node_of(other.graph, result).attribute.append(helper.make_attribute("epsilon", 0.5))
    return other


@pytest.mark.parametrize("result", ["c", "d"])
def test_a_fault_in_what_the_first_has_folded_is_named_and_no_constant_is(result: str) -> None:
    first = model(FOLDED, **folded())
    assert diff(first, model(UNFOLDED, **normalized())).verdict == "agree"
    found = diff(first, off(result))
    (cause,) = found.findings.causes
    assert cause.row.pair.second == result, str(found)
    assert [label.split()[0] for label in cause.nodes[1]] == ["Conv", "BatchNormalization"]


@pytest.mark.parametrize("result", ["c", "d"])
def test_a_fault_in_what_the_second_has_folded_is_named_and_no_constant_is(result: str) -> None:
    second = model(FOLDED, **folded())
    assert diff(model(UNFOLDED, **normalized()), second).verdict == "agree"
    found = diff(off(result), second)
    (cause,) = found.findings.causes
    assert cause.row.pair.second == result, str(found)
    assert [label.split()[0] for label in cause.nodes[0]] == ["Conv", "BatchNormalization"]


@pytest.mark.parametrize("result", ["c", "d"])
def test_a_fault_in_what_the_first_has_folded_is_named_where_the_second_takes_its_constants(result: str) -> None:
    """As the models of dumps take parameters."""
    second = off(result)
    given = {tensor.name: torch.from_numpy(numpy_helper.to_array(tensor).copy()) for tensor in second.graph.initializer}
    taken = [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in second.graph.initializer]
    second.graph.input.extend(taken)
    del second.graph.initializer[:]
    x = torch.randn(1, 4, 6, 6, generator=torch.Generator().manual_seed(0))
    found = diff(model(FOLDED, **folded()), second, {"x": x, **given})
    assert [cause.row.pair.second for cause in found.findings.causes] == [result], str(found)


def test_a_wrong_bias_before_what_the_first_has_folded_is_named_by_what_is_computed_of_it() -> None:
    found = diff(model(FOLDED, **folded()), model(UNFOLDED, **normalized("b1")))
    assert [cause.row.pair.second for cause in found.findings.causes] == ["c"], str(found)


@pytest.mark.parametrize("name", ["w1", "b2"])
def test_a_wrong_constant_is_named_where_nothing_is_folded(name: str) -> None:
    found = diff(model(UNFOLDED, **normalized()), model(UNFOLDED, **normalized(name)))
    assert [cause.row.pair.second for cause in found.findings.causes] == [name], str(found)


def test_unrelated_models_diverge_and_say_why() -> None:
    other = model("agraph (float[3] a) => (float[3] b) { c = Exp(a)\n b = Cos(c) }")
    found = diff(attention(), other)
    assert found.verdict == "diverge"
    assert "nothing was compared" in found.findings.reason
    assert {value.model for value in found.findings.unpaired} == {"first", "second"}


def test_bodies_are_compared_at_their_results_and_named() -> None:
    text = """agraph (float[4] x, bool c) => (float[4] y) {
        big = Exp(x)
        z = If (c) <
            then_branch = left () => (float[4] l) { l = Neg(big) },
            else_branch = right () => (float[4] r) { r = Relu(big) }
        >
        y = Add(z, x)
    }"""
    found = diff(model(text), shuffled_body(model(text)))
    assert found.verdict == "agree", str(found)
    assert any("not entered" in note and "If" in note for note in found.findings.notes)
    wrong = model(text)
    node_of(wrong.graph, "z").attribute[0].g.node[0].op_type = "Abs"
    node_of(wrong.graph, "z").attribute[1].g.node[0].op_type = "Abs"
    broken = diff(model(text), wrong)
    assert broken.first_divergence is not None
    assert broken.first_divergence.row.pair.second == "z"


def shuffled_body(original: onnx.ModelProto) -> onnx.ModelProto:
    for name in ("big", "z"):
        renamed = onnx.ModelProto.FromString(original.SerializeToString())
        for node in renamed.graph.node:
            node.input[:] = [f"{n}_2" if n == name else n for n in node.input]
            node.output[:] = [f"{n}_2" if n == name else n for n in node.output]
            for attribute in node.attribute:
                for inner in attribute.g.node:
                    inner.input[:] = [f"{n}_2" if n == name else n for n in inner.input]
        original = renamed
    return original


def test_local_functions_are_entered() -> None:
    called = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 18, "own" : 1]>
        agraph (float[4] x) => (float[4] y) { z = own.double(x)\n y = Exp(z) }
        <domain: "own", opset_import: ["" : 18]> double (a) => (b) { b = Add(a, a) }""")
    plain = model("agraph (float[4] x) => (float[4] y) { z = Add(x, x)\n y = Exp(z) }")
    found = diff(plain, called)
    assert found.verdict == "agree", str(found)
    assert {"z", "y"} <= set(partners(found).values())


def calling(depth: int) -> onnx.ModelProto:
    """Functions that each call the next one twice."""
    own = '<domain: "own", opset_import: ["" : 18, "own" : 1]>'
    calls = [f"{own} f{i} (a) => (b) {{ c = own.f{i + 1}(a)\n b = own.f{i + 1}(c) }}" for i in range(depth)]
    return onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 18, "own" : 1]>
        agraph (float[4] x) => (float[4] y) {{ y = own.f0(x) }}
        {" ".join(calls)} {own} f{depth} (a) => (b) {{ b = Neg(a) }}"""
    )


def test_functions_that_grow_without_end_are_refused() -> None:
    plain = model("agraph (float[4] x) => (float[4] y) { y = Neg(x) }")
    assert diff(calling(2), plain).verdict == "diverge"  # an even number of signs turned
    with pytest.raises(
        UsageError, match=r"^second has local functions that make 1.1e\+12 nodes of it, more than 1e\+06$"
    ):
        diff(plain, calling(40))


def test_sequences_are_named_as_not_compared() -> None:
    text = """agraph (float[4] x) => (float[8] y) {
        e = Exp(x)
        s = SequenceConstruct(e, x)
        y = ConcatFromSequence<axis = 0>(s)
    }"""
    found = diff(model(text), model(text))
    assert found.verdict == "agree", str(found)
    assert any("sequences" in note for note in found.findings.notes)


def test_the_reference_evaluator_runs_too() -> None:
    found = diff(attention(), shuffled(attention(), 4), engine="reference")
    assert found.verdict == "agree", str(found)


def test_half_precision_is_judged_by_its_own_rounding() -> None:
    text = "agraph ({0}[4, 8] x) => ({0}[4, 8] y) {{ h = MatMul(x, w)\n y = Tanh(h) }}"
    w = weights("w")["w"]
    first = model(text.format("float16"), w=w.astype(np.float16))
    wide = """agraph (float16[4, 8] x) => (float16[4, 8] y) {
        c = Cast<to = 1>(x)
        h = MatMul(c, w)
        t = Tanh(h)
        y = Cast<to = 10>(t)
    }"""
    found = diff(first, model(wide, w=w.astype(np.float16).astype(np.float32)))
    assert found.verdict == "agree", str(found)


def test_bfloat16_runs_on_the_cpu() -> None:
    text = "agraph (bfloat16[4, 8] x) => (bfloat16[4, 8] y) { h = MatMul(x, w)\n y = Tanh(h) }"
    both = model(text)
    both.graph.initializer.append(
        helper.make_tensor("w", TensorProto.BFLOAT16, [8, 8], weights("w")["w"].flatten().tolist())
    )
    assert diff(both, both).verdict == "agree"


SCORES = """
    agraph (float[12, 8] x) => (float[12, 8] y) {
        q = MatMul(x, wq)
        k = MatMul(x, wk)
        v = MatMul(x, wv)
        kt = Transpose<perm = [1, 0]>(k)
        scores = MatMul(q, kt)
        s = Mul(scores, scale)
"""
BY_THE_LARGEST = """
        m = ReduceMax(s, axis)
        d = Sub(s, m)
        e = Exp(d)
        z = ReduceSum(e, axis)
        p = Div(e, z)
        mixed = MatMul(p, v)
        y = Add(mixed, x)
    }"""
BY_THE_SUM = """
        l = ReduceLogSumExp<keepdims = 0>(s, axis)
        i = Identity(l)
        u = Unsqueeze(i, axis)
        d = Sub(s, u)
        p = Exp(d)
        mixed = MatMul(p, v)
        y = Add(mixed, x)
    }"""


@pytest.mark.parametrize("is_reverse", [False, True])
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("scale", [0.25, 1, 2, 4])
def test_two_ways_to_a_softmax_agree(scale: float, seed: int, is_reverse: bool) -> None:
    """The largest score and the logarithm of the sum stand in one place, and hold nearly the same of large scores."""
    constants = {**weights("wq", "wk", "wv"), "scale": np.float32(scale), "axis": np.array([1])}
    both = [model(SCORES + way, **constants) for way in (BY_THE_LARGEST, BY_THE_SUM)]
    found = diff(*(reversed(both) if is_reverse else both), seed=seed)
    assert found.verdict == "agree", str(found)


WRONG_WAYS = {
    "p": ("p = Exp(d)", "p = Sigmoid(d)"),
    "v": ("v = MatMul(x, wv)", "v = MatMul(x, wo)"),
    "q": ("q = MatMul(x, wq)", "r = MatMul(x, wq)\n        q = Tanh(r)"),
    "y": ("y = Add(mixed, x)", "y = Sub(mixed, x)"),
}


@pytest.mark.parametrize("scale", [0.25, 2])
@pytest.mark.parametrize("fault", WRONG_WAYS)
def test_a_fault_beside_another_way_to_a_softmax_is_named_first(fault: str, scale: float) -> None:
    constants = {**weights("wq", "wk", "wv", "wo"), "scale": np.float32(scale), "axis": np.array([1])}
    wrong = (SCORES + BY_THE_SUM).replace(*WRONG_WAYS[fault])
    found = diff(model(SCORES + BY_THE_LARGEST, **constants), model(wrong, **constants))
    assert found.verdict == "diverge"
    assert found.first_divergence is not None
    assert found.first_divergence.row.pair.second == fault, str(found)


def test_the_same_module_by_two_exporters(graphs_of: object) -> None:
    module = torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    x = torch.randn(3, 8)
    with torch.no_grad():
        exported = torch.onnx.export(module, (x,), dynamo=True, verbose=False).model_proto
        (graph,) = graphs_of(module, x)  # type: ignore[operator]
    inputs = {name: as_tensor(value) for name, value in graph.named_inputs().items()}
    found = diff(exported, graph.onnx_model, inputs)
    assert found.verdict == "agree", str(found)
    computed = {row.pair.second for row in found.rows} & {
        n for node in graph.onnx_model.graph.node for n in node.output
    }
    assert computed >= {"addmm", "addmm_1", "gelu", "getitem"}
    wrong = onnx.ModelProto()
    wrong.CopyFrom(graph.onnx_model)
    node = next(node for node in wrong.graph.node if node.op_type == "Add" and node.output[0].startswith("addmm"))
    node.op_type = "Sub"
    departure = diff(exported, wrong, inputs).first_divergence
    assert departure is not None
    assert any(label.startswith("Sub ") for label in departure.nodes[1]), departure


def test_the_json_is_strict(tmp_path: object) -> None:
    wrong = attention()
    FAULTS["axis"][1](wrong.graph)
    text = json.dumps(diff(attention(), wrong).as_json(), allow_nan=False)
    read = json.loads(text)
    assert read["verdict"] == "diverge"
    assert read["causes"][0]["second"] == "p"


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({}, "hold nothing for 'x'"),
        ({"z": torch.zeros(4, 8)}, "neither model takes"),
        ({"x": torch.zeros(4, 7)}, "takes float32 4x8"),
        ({"x": torch.zeros(4, 8, dtype=torch.float64)}, "takes float32 4x8"),
        ("inputs.safetensors", "inputs is a str; give tensors by input name"),
    ],
)
def test_wrong_inputs_are_refused(inputs: Any, words: str) -> None:
    with pytest.raises(DortError, match=words):
        diff(attention(), attention(), inputs)


def test_random_indices_stay_inside_the_table() -> None:
    text = "agraph (int64[50] i) => (float[50, 8] y) { t = Identity(table)\n j = Identity(i)\n y = Gather(table, j) }"
    both = model(text, table=weights("w")["w"][:3])
    assert diff(both, both).verdict == "agree"


def test_roundings_that_add_up_are_no_departure_and_are_told() -> None:
    text = "agraph (float[4, 8] x) => (float[4, 8] y) { h = Mul(x, k)\n d = Sub(h, x)\n y = Mul(d, t) }"
    first = model(text, k=np.float32(1 + 2**-22), t=np.float32(2**20))
    split = (
        "agraph (float[4, 8] x) => (float[4, 8] y) { g = Mul(x, two)\n h = Mul(g, k)\n d = Sub(h, x)\n y = Mul(d, t) }"
    )
    nearly = {"two": np.float32(2), "k": np.float32((1 + 2**-23) / 2), "t": np.float32(2**20)}
    found = diff(first, model(split, **nearly))
    assert found.verdict == "agree", str(found)
    assert any("rounding that has accumulated" in note for note in found.findings.notes), str(found)


def test_strings_among_constants_and_casts_are_not_compared() -> None:
    spelled = """
    agraph (float[4, 8] x) => (float[4, 8] y) {
        s = Cast<to = 8>(x)
        joined = Concat<axis = 0>(s, words)
        t = Cast<to = 1>(s)
        y = Tanh(t)
    }"""
    other = model(spelled, words=np.full((1, 8), "0", dtype=object))
    plain = model("agraph (float[4, 8] x) => (float[4, 8] y) { y = Tanh(x) }")
    for first, second in ((plain, other), (other, plain), (other, other)):
        found = diff(first, second, {"x": torch.arange(1.0, 33.0).reshape(4, 8) / 32})
        assert found.verdict == "agree", str(found)
        assert any("strings or numbers of few bits and not compared" in note for note in found.findings.notes)


FEW_BITS = {
    "int4": "q = QuantizeLinear<output_dtype = 22>(x, s)\n d = DequantizeLinear(q, s)",
    "int4 by its zero": "z = Cast<to = 22>(s)\n q = QuantizeLinear(x, s, z)\n d = DequantizeLinear(q, s)",
    "float8": "q = Cast<to = 17>(x)\n d = Cast<to = 1>(q)",
}


@pytest.mark.parametrize("steps", FEW_BITS.values(), ids=FEW_BITS)
def test_numbers_of_few_bits_are_not_compared_but_what_is_made_of_them(steps: str) -> None:
    text = f"agraph (float[4, 8] x) => (float[4, 8] y) {{ {steps}\n y = Tanh(d) }}"
    made = [model(text, s=np.float32(0.2)), model("agraph (float[4, 8] x) => (float[4, 8] y) { y = Tanh(x) }")]
    for each in made:
        each.opset_import[0].version = 21
    found = diff(made[0], made[0])
    assert found.verdict == "agree", str(found)
    assert diff(*made).verdict == "diverge"


def test_an_output_of_another_shape_diverges_and_one_of_another_dtype_is_told() -> None:
    first = model("agraph (float[4, 8] x) => (float[4, 8] y) { y = Tanh(x) }")
    flat = "agraph (float[4, 8] x) => (float[32] y) { t = Tanh(x)\n y = Reshape(t, s) }"
    found = diff(first, model(flat, s=np.array([32], dtype=np.int64)))
    assert (found.verdict, found.findings.reason) == ("diverge", "output 'y' is float32 32 where 'y' is float32 4x8")
    half = diff(first, model("agraph (float[4, 8] x) => (float16[4, 8] y) { t = Tanh(x)\n y = Cast<to = 10>(t) }"))
    assert half.verdict == "agree"
    assert "output 'y' is float16 4x8 where 'y' is float32 4x8" in half.findings.notes


# What one model says of its inputs, and the other does not.

OPEN = "agraph (float[N, 8] x) => (float[N, 8] y) { y = Tanh(x) }"
SHAPED = "agraph (float[2, 8] x) => (float[2, 8] y) { y = Tanh(x) }"


def without_shape(text: str) -> onnx.ModelProto:
    made = model(text)
    made.graph.input[0].type.tensor_type.ClearField("shape")
    return made


@pytest.mark.parametrize("other", [model(OPEN), without_shape(OPEN)], ids=["open", "undeclared"])
@pytest.mark.parametrize("is_first", [True, False])
def test_an_input_is_drawn_in_the_sizes_that_either_model_declares(other: onnx.ModelProto, is_first: bool) -> None:
    found = diff(other, model(SHAPED)) if is_first else diff(model(SHAPED), other)
    assert found.verdict == "agree"
    (row,) = [row for row in found.rows if row.pair.first == "y"]
    assert row.inherited is not None
    assert row.inherited.numel == 16


def test_an_input_without_a_shape_is_asked_for() -> None:
    with pytest.raises(UsageError, match=r"input 'x' declares no shape to draw values in; give --inputs"):
        diff(without_shape(OPEN), without_shape(OPEN))
    assert diff(without_shape(OPEN), without_shape(OPEN), inputs={"x": torch.ones(3, 8)}).verdict == "agree"


# Which output stands for which: by name, else by place.

TWO = "agraph (float[4, 8] x) => (float[4, 8] {}, float[4, 8] {}) {{ {} = Exp(x)\n {} = Tanh(x) }}"


SIZED = """m (int64 n, float[8, N] x) => (float[L, 4, 2] y) {
    length = Reshape(n, single)
    sizes = Concat<axis = 0>(length, rest)
    shaped = Reshape(x, sizes)
    y = Tanh(shaped)
}"""


def sized(rest: list[int]) -> onnx.ModelProto:
    return model(SIZED, single=np.int64([1]), rest=np.int64(rest))


def test_an_integer_that_is_a_size_of_a_shape_is_drawn_as_open_sizes_are() -> None:
    found = diff(sized([4, 2]), sized([4, 2]))
    assert found.verdict == "agree", str(found)


def test_where_a_model_fails_on_sizes_that_were_drawn_the_inputs_are_asked_for() -> None:
    other = sized([2, 2])
    with pytest.raises(ExecutionError, match=r"first: ONNX Runtime failed.*drawn; give --inputs$"):
        diff(other, other)
    given = {"n": torch.tensor(6), "x": torch.randn(8, 3)}
    assert diff(other, other, given).verdict == "agree"
    with pytest.raises(ExecutionError, match="second: ONNX Runtime failed") as failed:
        diff(other, sized([2, 3]), given)
    assert "--inputs" not in str(failed.value)


def test_where_a_model_fails_whatever_is_drawn_no_inputs_are_asked_for() -> None:
    masked = model("m (bool[2] keep, float[3] x) => (float[N] y) { y = Where(keep, x, x) }")
    with pytest.raises(ExecutionError, match="first: ONNX Runtime failed") as failed:
        diff(masked, masked)
    assert "--inputs" not in str(failed.value)


def test_outputs_that_are_swapped_under_the_same_names_diverge() -> None:
    found = diff(model(TWO.format("p", "q", "p", "q")), model(TWO.format("p", "q", "q", "p")))
    assert found.verdict == "diverge"
    assert [cause.row.pair.second for cause in found.findings.causes] == ["q", "p"]
    assert found.findings.causes[1].reason.startswith(
        "output 'p' of second holds 'q' of first; max |first - second| = "
    )
    assert found.findings.causes[1].reason.endswith("Tanh instead of Exp")


def test_outputs_that_share_no_names_stand_for_one_another_by_place() -> None:
    first = model(TWO.format("p", "q", "p", "q"))
    assert diff(first, model(TWO.format("a", "b", "a", "b"))).verdict == "agree"
    swapped = diff(first, model(TWO.format("a", "b", "b", "a")))
    assert (swapped.verdict, len(swapped.findings.causes)) == ("diverge", 2)
    assert "output 'a' of second holds 'q' of first" in str(swapped)


def test_the_same_outputs_in_another_order_are_told() -> None:
    found = diff(model(TWO.format("p", "q", "p", "q")), model(TWO.format("q", "p", "p", "q")))
    assert found.verdict == "agree"
    assert "second returns q, p in this order, first p, q" in found.findings.notes


def test_an_output_that_holds_another_value_of_the_first_diverges() -> None:
    first = model("agraph (float[4, 8] x) => (float[4, 8] y) { h = Neg(x)\n y = Relu(h) }")
    unread = diff(first, model("agraph (float[4, 8] x) => (float[4, 8] y) { y = Neg(x)\n z = Relu(y) }"))
    assert unread.verdict == "diverge"
    assert unread.findings.reason.startswith("output 'y' of second holds 'h' of first; max |first - second| = ")
    assert unread.findings.reason.endswith("Neg instead of Relu")


@pytest.mark.parametrize("returned", ["p = Identity(x)", "p = Exp(x)"])
def test_a_value_that_is_returned_twice_is_no_swap(returned: str) -> None:
    both = "agraph (float[4, 8] x) => (float[4, 8] p, float[4, 8] q) {{ q = {}\n p = {} }}"
    rest = returned.removeprefix("p = ")
    twice, once = model(both.format(rest, rest)), model(both.format(rest, "Identity(q)"))
    for first, second in ((twice, once), (once, twice), (twice, twice), (once, once)):
        found = diff(first, second)
        assert found.verdict == "agree", str(found)


@pytest.mark.parametrize(("other", "verdict"), [("Neg", "agree"), ("Exp", "diverge")])
def test_one_value_may_be_two_outputs_under_one_name(other: str, verdict: str) -> None:
    apart = model(f"agraph (float[4, 8] x) => (float[4, 8] p, float[4, 8] q) {{ p = Neg(x)\n q = {other}(x) }}")
    merged = model("agraph (float[4, 8] x) => (float[4, 8] p, float[4, 8] p) { p = Neg(x) }")
    for first, second in ((apart, merged), (merged, apart)):
        found = diff(first, second)
        assert found.verdict == verdict, str(found)


def test_an_output_that_is_gone_diverges_and_one_in_addition_is_told() -> None:
    more = model("agraph (float[4, 8] x) => (float[4, 8] y, float[4, 8] h) { h = Exp(x)\n y = Neg(h) }")
    less = model("agraph (float[4, 8] x) => (float[4, 8] y) { h = Exp(x)\n y = Neg(h) }")
    found = diff(more, less)
    assert (found.verdict, found.findings.reason) == ("diverge", "second does not return 'h', an output of first")
    found = diff(less, more)
    assert found.verdict == "agree"
    assert "second returns 'h' in addition" in found.findings.notes
    other = model("agraph (float[4, 8] x) => (float[4, 8] a, float[4, 8] b) { a = Exp(x)\n b = Neg(a) }")
    assert diff(less, other).verdict == "agree"
    assert diff(other, less).findings.reason == "second does not return 'a', an output of first"


def test_an_output_of_another_kind_or_size_diverges_though_its_content_is_returned_elsewhere() -> None:
    text = "agraph (float[4, 8] x) => ({}) {{ {} = Exp(x)\n {} = ReduceSum<keepdims = 0>({}, axes) }}"
    first = model(text.format("float[4, 8] p, float[4] q", "p", "q", "p"), axes=np.array([1]))
    swapped = model(text.format("float[4] p, float[4, 8] q", "q", "p", "q"), axes=np.array([1]))
    found = diff(first, swapped)
    assert (found.verdict, found.findings.reason) == ("diverge", "output 'p' is float32 4 where 'p' is float32 4x8")


def test_a_model_whose_nodes_are_in_no_order_is_read() -> None:
    backwards = attention()
    nodes = list(reversed(backwards.graph.node))
    del backwards.graph.node[:]
    backwards.graph.node.extend(nodes)
    for first, second in ((attention(), backwards), (backwards, attention())):
        found = diff(first, second)
        assert found.verdict == "agree", str(found)
        assert not found.findings.unpaired
    assert backwards.graph.node[0].output[0] == "y"


def test_a_model_that_goes_in_a_circle_is_refused() -> None:
    circle = model("agraph (float[4] x) => (float[4] y) { a = Add(x, y)\n y = Neg(a) }")
    with pytest.raises(
        UsageError, match=r"^second: node '' \(Add\) reads 'y', which nothing before it makes; it is no"
    ):
        diff(model("agraph (float[4] x) => (float[4] y) { y = Neg(x) }"), circle)


ONE_STATE = """agraph (float[1, 8] x) => (float[1, 8] y) {
    shape = Concat<axis = 0>(one, eight)
    h = Expand(zero, shape)
    s = Add(x, h)
    shape2 = Concat<axis = 0>(one, eight)
    h2 = Expand(zero, shape2)
    t = Tanh(s)
    y = Add(t, h2)
}"""
TWO_STATES = """agraph (float[1, 8] x) => (float[1, 8] y) {
    shape = Concat<axis = 0>(two, eight)
    h = Expand(zero, shape)
    h1 = Slice(h, zeroth, one, zeroth)
    s = Add(x, h1)
    h2 = Slice(h, one, two, zeroth)
    v = Reshape(h2, whole)
    t = Tanh(s)
    y = Add(t, v)
}"""
SIZES = {"one": np.array([1]), "two": np.array([2]), "eight": np.array([8]), "zeroth": np.array([0])}


def test_a_pair_of_shapes_on_which_nodes_fail_is_dropped() -> None:
    """In like places stand the shape of one state and of two: on the former the latter's nodes cannot run."""
    first = model(ONE_STATE, one=SIZES["one"], eight=SIZES["eight"], zero=np.float32(0))
    second = model(TWO_STATES, **SIZES, whole=np.array([1, 8]), zero=np.float32(0))
    for one, other in ((first, second), (second, first)):
        found = diff(one, other)
        assert found.verdict == "agree", str(found)
        assert partners(found)["y"] == "y"


def test_a_node_that_fails_on_its_own_values_is_an_error_still() -> None:
    wrong = TWO_STATES.replace("Reshape(h2, whole)", "Reshape(h2, zeroth)")
    second = model(wrong, **SIZES, zero=np.float32(0))
    with pytest.raises(ExecutionError, match="second: ONNX Runtime failed"):
        diff(model(ONE_STATE, one=SIZES["one"], eight=SIZES["eight"], zero=np.float32(0)), second)


ROOT = "agraph (float[1] v, float[4] x) => (float[4] y) { s = Add(v, small) r = Sqrt(s) y = Div(x, r) }"
NORM = """
    agraph (float[2, 1] x, float[1] g, float[1] b, float[1] m, float[1] v) => (float[2, 1] y) {
        y = BatchNormalization(x, g, b, m, v)
    }"""


@pytest.mark.parametrize("text", [ROOT, NORM])
def test_variances_are_drawn_as_such(text: str) -> None:
    graph = model(text, small=np.float32(1e-5))
    for seed in range(8):
        assert diff(graph, graph, seed=seed).verdict == "agree"


@pytest.mark.parametrize("fill", [np.nan, np.inf])
def test_outputs_without_a_number_are_no_agreement(fill: float) -> None:
    graph = model("agraph (float[4] x) => (float[4] y) { y = Mul(x, c) }", c=np.float32(fill))
    found = diff(graph, graph)
    assert found.verdict == "diverge"
    assert found.findings.reason.startswith("nothing was compared: first returns no finite number")


HIDDEN = np.triu(np.ones((6, 6), dtype=np.float32), 1)
HIDDEN[:, 0] = 1


@pytest.mark.parametrize("infinity", [-3.4e38, -1e9])
def test_beside_a_row_that_a_mask_hides_whole_a_fault_is_seen(infinity: float) -> None:
    """What a softmax makes of such a row, as of padding on the left, one rounding decides."""
    text = (
        "agraph (float[6, 6] x, float[6, 8] v) => (float[6, 8] y) { s = Add(x, m)\n p = Softmax(s)\n y = MatMul(p, v) }"
    )
    mask, other = (HIDDEN * np.float32(each) for each in (infinity, -2e9))
    first = model(text, m=mask)
    assert diff(first, model(text, m=other)).verdict == "agree"
    wrong = model(text.replace("Softmax", "Softmax<axis = 0>"), m=mask)
    for one, second in ((first, wrong), (wrong, first)):
        found = diff(one, second)
        assert [cause.row.pair.second for cause in found.findings.causes] == ["p"], str(found)


IN_TWO_STEPS = """
    agraph (float[2, 2, 3, 2] x) => (float[6, 4] y) {
        t = Transpose<perm = [0, 2, 1, 3]>(x)
        r0 = Reshape(t, wide)
        r = Reshape(r0, flat)
        m = MatMul(r, w)
        h = Tanh(m)
        b = Reshape(h, back)
        t2 = Transpose<perm = [0, 2, 1, 3]>(b)
        q0 = Reshape(t2, wide)
        q = Reshape(q0, also_flat)
        y = MatMul(q, w)
    }"""
IN_ONE_STEP = """
    agraph (float[2, 2, 3, 2] x) => (float[6, 4] y) {
        t = Transpose<perm = [0, 2, 1, 3]>(x)
        r = Reshape(t, sizes)
        m = MatMul(r, w)
        h = Tanh(m)
        b = Reshape(h, back)
        t2 = Transpose<perm = [0, 2, 1, 3]>(b)
        q = Reshape(t2, sizes)
        y = MatMul(q, w)
    }"""


@pytest.mark.parametrize("seed", [0, 1])
def test_a_shape_said_in_other_words_is_no_cause_before_a_fault(seed: int) -> None:
    shared = {"w": weights("w")["w"][:4, :4], "back": np.array([2, 2, 3, 2])}
    two = {"wide": np.array([2, 3, 4]), "flat": np.array([-1, 4]), "also_flat": np.array([-1, 4])}
    first = model(IN_TWO_STEPS, **shared, **two)
    sizes = np.array([6, 4])
    assert diff(first, model(IN_ONE_STEP, sizes=sizes, **shared), seed=seed).verdict == "agree"
    found = diff(first, model(IN_ONE_STEP.replace("Tanh", "Sigmoid"), sizes=sizes, **shared), seed=seed)
    assert [cause.row.pair.second for cause in found.findings.causes] == ["h"], str(found)


def test_a_wrong_shape_is_the_cause_also_where_all_runs() -> None:
    steps = "e = Expand(x, s)\n t = Tanh(e)\n y = ReduceSum<keepdims = 0>(t, axis)"
    text = f"agraph (float[1, 6] x) => (float[6] y) {{ {steps} }}"
    first, second = (model(text, s=np.array([rows, 6]), axis=np.array([0])) for rows in (3, 2))
    for one, other in ((first, second), (second, first)):
        found = diff(one, other)
        assert [cause.row.pair.second for cause in found.findings.causes] == ["s"], str(found)


EXPONENTIAL = "agraph () => (float[2] y) <float[2] k = {1.0, 2.0}> { h = Exp(k) y = Neg(h) }"
CONSTANT = "agraph () => (float[2] y) { y = Constant<value_floats = [-2.7182817, -7.389056]>() }"
INITIALIZER = "agraph () => (float[2] y) <float[2] y = {-2.7182817, -7.389056}> {}"


@pytest.mark.parametrize("engine", ["ort", "reference"])
@pytest.mark.parametrize("folded", [CONSTANT, INITIALIZER])
def test_a_model_that_is_folded_whole_is_held_against_what_computes_it(folded: str, engine: EngineName) -> None:
    wrong = folded.replace("7.389", "7.489")
    for first, second in ((EXPONENTIAL, folded), (folded, EXPONENTIAL)):
        found = diff(model(first), model(second), engine=engine)
        assert found.verdict == "agree", str(found)
        assert [(row.pair.first, row.pair.second) for row in found.rows] == [("y", "y")]
        assert found.findings.reason == "1 computed values paired, and none departs"
    for first, second in ((EXPONENTIAL, wrong), (wrong, EXPONENTIAL)):
        found = diff(model(first), model(second), engine=engine)
        assert found.verdict == "diverge"
        assert found.findings.reason.startswith("max |first - second| = 0.1")


def test_two_models_that_are_folded_whole_are_held_against_each_other() -> None:
    found = diff(model(CONSTANT), model(INITIALIZER))
    assert (found.verdict, found.findings.reason) == ("agree", "1 returned values paired, and none departs")
    assert diff(model(CONSTANT), model(INITIALIZER.replace("7.389", "7.489"))).verdict == "diverge"


def test_one_of_two_outputs_may_be_folded() -> None:
    text = "agraph (float[2] x) => (float[2] y, float[2] c) {} {{ y = Tanh(x) {} }}"
    first = text.format("<float[2] k = {1.0, 2.0}>", "c = Exp(k)")
    second = text.format("<float[2] c = {2.7182817, 7.389056}>", "")
    for one, other in ((first, second), (second, first)):
        assert diff(model(one), model(other)).findings.reason == "2 computed values paired, and none departs"
        wrong = [graph.replace("7.389", "7.489") for graph in (one, other)]
        found = diff(*map(model, wrong))
        assert found.first_divergence is not None
        assert found.first_divergence.row.pair.second == "c"


def test_an_output_may_be_an_input() -> None:
    through, same = "agraph (float[2] x) => (float[2] x) {}", "agraph (float[2] x) => (float[2] y) { y = Identity(x) }"
    for first, second in ((same, through), (through, same)):
        found = diff(model(first), model(second))
        assert found.verdict == "agree", str(found)
        assert (
            diff(model(first.replace("Identity", "Exp")), model(second.replace("Identity", "Exp"))).verdict == "diverge"
        )
    assert diff(model(through), model(through)).findings.reason.startswith("nothing was compared")


def test_constants_that_are_the_same_are_no_comparison() -> None:
    """Of what neither returns."""
    first = model("agraph (float[2] x) => (float[2] y) <float[2] k = {1.0, 2.0}> { y = Add(x, k) }")
    second = model("agraph (float[2] x, float[3] z) => (float[3] y) <float[2] k = {1.0, 2.0}> { y = Exp(z) }")
    found = diff(first, second)
    assert found.verdict == "diverge"
    assert found.findings.reason.startswith("nothing was compared")


def test_a_model_without_outputs_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^second holds no graph; give an ONNX model$"):
        diff(model(CONSTANT), onnx.ModelProto())
    with pytest.raises(UsageError, match=r"^second returns nothing; give its graph outputs$"):
        diff(model(CONSTANT), model("agraph (float[2] x) => () { y = Exp(x) }"))


CONVOLUTION = "agraph (float[1, 2, 6, 6] x) => (float[1, 2, 6, 6] y) {{ r = Exp(x) h = Conv<{}>(r, w) y = Tanh(h) }}"
SHORT = "pads = [1, 1, 1, 1]"
IN_FULL = """auto_pad = "NOTSET", group = 1, kernel_shape = [3, 3], strides = [1, 1],
    dilations = [2, 2], pads = [2, 2, 2, 2]"""


def test_defaults_that_one_model_writes_out_are_no_difference() -> None:
    weight = np.random.default_rng(0).standard_normal((2, 2, 3, 3)).astype(np.float32)
    in_full, short = (model(CONVOLUTION.format(each), w=weight) for each in (IN_FULL, SHORT))
    words = "is noise; dilations {} instead of {}; pads {} instead of {}"
    dilations, pads = ("the default", "[2, 2]"), ("[1, 1, 1, 1]", "[2, 2, 2, 2]")
    assert diff(in_full, short).findings.reason.endswith(words.format(*dilations, *pads))
    assert diff(short, in_full).findings.reason.endswith(words.format(*reversed(dilations), *reversed(pads)))


@pytest.mark.parametrize(("version", "default"), [(18, "-1"), (12, "1")])
def test_a_default_is_told_as_it_is(version: int, default: str) -> None:
    text = "agraph (float[4, 6, 2] x) => (float[4, 6, 2] y) {{ r = Exp(x) h = Softmax{}(r) y = Tanh(h) }}"
    first, second = model(text.format("")), model(text.format("<axis = 0>"))
    first.opset_import[0].version = version
    assert diff(first, second).findings.reason.endswith(f"is noise; axis 0 instead of {default}")
    assert diff(second, first).findings.reason.endswith(f"is noise; axis {default} instead of 0")


def test_what_another_version_reads_as_an_operand_is_no_default() -> None:
    text = "agraph (float[4, 6] x) => (float[4, 6] y) {{ r = Exp(x) h = {} y = Tanh(h) }}"
    first = model(text.format("Clip<min = 0.5, max = 2.0>(r)"))
    second = model(text.format("Clip(r, low, high)"), low=np.float32(0.5), high=np.float32(1))
    first.opset_import[0].version = 10
    for one, other in ((first, second), (second, first)):
        found = diff(one, other)
        assert found.first_divergence is not None
        assert found.first_divergence.row.pair.second == "h"
        assert found.first_divergence.reason.endswith("is noise")


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


def test_a_default_that_another_version_lacks_is_no_difference() -> None:
    text = "agraph (float[4, 8] x) => (float[4, 8] y) { t = Transpose<perm = [1, 0]>(x)\n y = Reshape(t, s) }"
    first, second = (model(text, s=np.array([4, 8])) for _ in range(2))
    first.opset_import[0].version = 13
    node_of(second.graph, "t").op_type = "Identity"
    del node_of(second.graph, "t").attribute[:]
    assert "allowzero" not in str(diff(first, second))
    assert "allowzero" not in str(diff(second, first))


@pytest.mark.parametrize("other", [TensorProto.INT32, TensorProto.INT64])
def test_integers_of_any_size_are_one_output(other: int) -> None:
    text = "agraph (float[4, 8] x) => (y) {{ r = Round(x)\n y = Cast<to = {}>(r) }}"
    both = [model(text.format(kind)) for kind in (TensorProto.INT8, other)]
    assert diff(*both).verdict == diff(*reversed(both)).verdict == "agree"


def test_a_large_column_is_no_mask_where_nothing_takes_exponentials() -> None:
    """What is taken from it before or behind a product errs by its roundings."""
    generator = np.random.default_rng(0)
    w = generator.standard_normal((8, 8)).astype(np.float32)
    mean = np.zeros(8, dtype=np.float32)
    mean[3] = -3000
    x = torch.from_numpy(0.3 * generator.standard_normal((16, 8)).astype(np.float32) + mean)
    steps = ("p = MatMul(x, w)\n y = Add(p, c)", "d = Sub(x, c)\n y = MatMul(d, w)")
    texts = (f"agraph (float[16, 8] x) => (float[16, 8] y) {{ {each} }}" for each in steps)
    both = [model(text, w=w, c=c) for text, c in zip(texts, (-mean @ w, mean), strict=True)]
    for first, second in (both, reversed(both)):
        assert diff(first, second, {"x": x}).verdict == "agree"


@pytest.mark.parametrize("is_wrong", [False, True])
def test_a_mask_may_be_infinite_or_the_least_number(*, is_wrong: bool) -> None:
    """Beside a fault, too: there it is no cause."""
    text = """agraph (float[4, 5] x) => (float[4, 5] y) {
        s = MatMul(x, w) t = Add(s, b) hidden = Where(mask, t, least) p = Softmax(hidden) y = MatMul(p, w) }"""
    generator = np.random.default_rng(0)
    w, b = (generator.standard_normal(shape).astype(np.float32) for shape in ((5, 5), 5))
    mask = np.tril(np.ones((4, 5), bool))
    first = model(text, w=w, b=b, mask=mask, least=np.float32(-np.inf))
    other = model(text, w=w, b=b * np.float32(1 + 0.1 * is_wrong), mask=mask, least=np.finfo(np.float32).min)
    for one, two in ((first, other), (other, first)):
        found = diff(one, two)
        assert [cause.row.pair.first for cause in found.findings.causes] == ["b"] * is_wrong, str(found)


def test_constants_that_numbers_alone_name_are_not_taken_for_inputs() -> None:
    text = """agraph (float[2, 4] x, float[4] arg1_1, float[4] arg2_1) => (float[2, 4] y) {
        h = Mul(x, arg1_1) y = Add(h, arg2_1)
    }"""
    held = "agraph (float[2, 4] x) => (float[2, 4] y) {h = Mul(x, v1) y = Add(h, v0)}"
    constants = {f"v{i}": np.full(4, i, np.float32) for i in range(2)}
    with pytest.raises(UsageError, match=r"input 'arg1_1' may be any of 2 constants of second; give --inputs"):
        diff(model(text), model(held, **constants))
    words = text.replace("arg1_1", "p_fc_scale").replace("arg2_1", "p_fc_bias")
    named = held.replace("v1", "fc_scale").replace("v0", "fc_bias")
    parameters = {"fc_scale": constants["v1"], "fc_bias": constants["v0"]}
    assert diff(model(words), model(named, **parameters)).verdict == "agree"


@pytest.mark.parametrize("sizes", [(4, 6, 4), (4, 4, 4), (4, 6, 5)], ids=str)
@pytest.mark.parametrize("held", ["up_weight, down_weight", "v1, v2"])
def test_parameters_that_the_other_model_holds_transposed_are_taken_so(sizes: tuple[int, ...], held: str) -> None:
    """As torch's exporter of TorchScript folds the transposes of linear layers' weights."""
    if held == "v1, v2" and sizes == (4, 4, 4):
        pytest.skip("nothing tells them apart")
    a, b, c = sizes
    taking = model(f"""agraph (float[2, {a}] x, float[{b}, {a}] p_up_weight, float[{c}, {b}] p_down_weight)
            => (float[2, {c}] y) {{
        t = Transpose<perm = [1, 0]>(p_up_weight)
        h = MatMul(x, t)
        g = Tanh(h)
        y = Gemm<transB = 1>(g, p_down_weight)
    }}""")
    generator = np.random.default_rng(0)
    weights = {
        name: generator.standard_normal(shape).astype(np.float32)
        for name, shape in zip(held.split(", "), ((a, b), (b, c)), strict=True)
    }
    one, two = weights
    text = f"agraph (float[2, {a}] x) => (float[2, {c}] y) {{ h = MatMul(x, {one}) g = Tanh(h) y = MatMul(g, {two}) }}"
    for first, second in ((taking, model(text, **weights)), (model(text, **weights), taking)):
        found = diff(first, second)
        assert found.verdict == "agree", str(found)


ANOTHER_WAY = {
    "Gemm": "y = Gemm<transB = 1>(x, weight)",
    "FusedGemm": """y = com.microsoft.FusedGemm<transB = 1, activation = "LeakyRelu", activation_alpha = 1.0>(
        x, weight, b)""",
    "FusedMatMul": "y = com.microsoft.FusedMatMul<transB = 1>(x, weight)",
    "Einsum": 'y = Einsum<equation = "bi,oi->bo">(x, weight)',
    "from the left": "t = Transpose<perm = [1, 0]>(x) m = MatMul(weight, t) y = Transpose<perm = [1, 0]>(m)",
    "scaled": "s = Mul(weight, one) t = Transpose<perm = [1, 0]>(s) y = MatMul(x, t)",
}


@pytest.mark.parametrize("rows", [4, 6])
@pytest.mark.parametrize("way", ANOTHER_WAY)
def test_parameters_that_the_other_model_holds_as_they_are_are_taken_so(way: str, rows: int) -> None:
    taking = model(f"""agraph (float[2, 4] x, float[{rows}, 4] p_weight) => (float[2, {rows}] y) {{
        y = Gemm<transB = 1>(x, p_weight)
    }}""")
    weight = np.random.default_rng(0).standard_normal((rows, 4)).astype(np.float32)
    text = f"agraph (float[2, 4] x) => (float[2, {rows}] y) {{ {ANOTHER_WAY[way]} }}"
    holding = model(text, weight=weight, b=np.zeros(rows, np.float32), one=np.ones((), np.float32))
    for first, second in ((taking, holding), (holding, taking)):
        found = diff(first, second)
        assert found.verdict == "agree", str(found)


def test_tensors_without_elements_are_no_comparison() -> None:
    one, other = (f"agraph (float[0, 3] x) => (float[0, 3] y) {{ y = {operator}(x) }}" for operator in ("Exp", "Neg"))
    found = diff(model(one), model(other))
    assert found.verdict == "diverge"
    assert found.findings.reason.startswith("nothing was compared: all that both models compute is empty")


def test_an_input_without_a_name_and_a_sparse_constant_are_one_line() -> None:
    right = model("agraph (float[2] x) => (float[2] y) { y = Relu(x) }")
    nameless = onnx.ModelProto.FromString(right.SerializeToString())
    nameless.graph.input.append(helper.make_tensor_value_info("", TensorProto.FLOAT, [2]))
    with pytest.raises(UsageError, match="second takes an input without a name"):
        diff(right, nameless)
    values = numpy_helper.from_array(np.ones(1, np.float32), "values")
    indices = numpy_helper.from_array(np.zeros(1, np.int64), "indices")
    sparse = onnx.ModelProto.FromString(right.SerializeToString())
    constant = helper.make_node("Constant", [], ["c"], sparse_value=helper.make_sparse_tensor(values, indices, [2]))
    sparse.graph.node.insert(0, constant)
    with pytest.raises(UsageError, match="second holds sparse constants, which are not read; make them dense"):
        diff(right, sparse)


@pytest.mark.parametrize("op_type", ["Cos", "Constant"])
def test_a_node_without_outputs_is_one_line(op_type: str) -> None:
    right = model("agraph (float[2] x) => (float[2] y) { y = Relu(x) }")
    wrong = onnx.ModelProto.FromString(right.SerializeToString())
    given = {"value_float": 1.0} if op_type == "Constant" else {}
    wrong.graph.node.append(helper.make_node(op_type, [] if given else ["x"], [], name="n", **given))
    with pytest.raises(UsageError, match=rf"first has a node 'n' \({op_type}\) without outputs; remove it"):
        diff(wrong, right, engine="reference")


def test_a_version_of_operators_that_no_number_of_theirs_holds_is_one_line() -> None:
    right = model("agraph (float[2] x) => (float[2] y) { y = Relu(x) }")
    wrong = onnx.ModelProto.FromString(right.SerializeToString())
    wrong.opset_import[0].version = 2**40
    with pytest.raises(ExecutionError, match="second: ONNX Runtime failed"):
        diff(right, wrong)
