"""Two ONNX models of one network of which one holds values with the dimensions in another order, as channels last."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import onnx
import pytest
import torch
from orders_of_dimensions import Model, alike, edited, model, paired

from dort_compare.onnx_diff import diff

FIRST = """
    agraph (float[2, {c}, {h}, {w}] image) => (float[2, 8, {h}, {w}] y) {{
        wide = Conv<pads = [1, 1, 1, 1]>(image, w1)
        scaled = Mul(wide, scale)
        moved = Add(scaled, bias)
        bent = Relu(moved)
        mean = ReduceMean<keepdims = 1>(bent, spatial)
        centred = Sub(bent, mean)
        deep = Conv<pads = [1, 1, 1, 1]>(centred, w2)
        summed = Add(deep, bent)
        joined = Concat<axis = 1>(summed, wide)
        narrow = Conv(joined, w3)
        y = Sigmoid(narrow)
    }}"""
LAST = """
    agraph (float[2, {h}, {w}, {c}] image) => (float[2, {h}, {w}, 8] Y) {{
        X0 = Transpose<perm = [0, 3, 1, 2]>(image)
        X1 = Conv<pads = [1, 1, 1, 1]>(X0, W1)
        Wide = Transpose<perm = [0, 2, 3, 1]>(X1)
        Scaled = Mul(Wide, Scale)
        Moved = Add(Scaled, Bias)
        Bent = Relu(Moved)
        Mean = ReduceMean<keepdims = 1>(Bent, Spatial)
        Centred = Sub(Bent, Mean)
        X2 = Transpose<perm = [0, 3, 1, 2]>(Centred)
        X3 = Conv<pads = [1, 1, 1, 1]>(X2, W2)
        Deep = Transpose<perm = [0, 2, 3, 1]>(X3)
        Summed = Add(Deep, Bent)
        Joined = Concat<axis = 3>(Summed, Wide)
        X4 = Transpose<perm = [0, 3, 1, 2]>(Joined)
        X5 = Conv(X4, W3)
        Narrow = Transpose<perm = [0, 2, 3, 1]>(X5)
        Y = Sigmoid(Narrow)
    }}"""
SIZES = {"all differ": {"c": 3, "h": 10, "w": 12}, "none differs": {"c": 8, "h": 8, "w": 8}}


def both(sizes: dict[str, int], seed: int = 0) -> tuple[Model, Model]:
    """Channels first, and the same network with channels last but for its convolutions."""
    generator = np.random.default_rng(seed)

    def values(*shape: int) -> np.ndarray:
        return (generator.standard_normal(shape) / 4).astype(np.float32)

    weights = {"w1": values(8, sizes["c"], 3, 3), "w2": values(8, 8, 3, 3), "w3": values(8, 16, 1, 1)}
    scale, bias = values(8), values(8)
    columns = {"scale": scale.reshape(8, 1, 1), "bias": bias.reshape(8, 1, 1), "spatial": np.array([2, 3])}
    rows = {"Scale": scale, "Bias": bias, "Spatial": np.array([1, 2])}
    upper = {name.upper(): weight for name, weight in weights.items()}
    return model(FIRST, sizes, **weights, **columns), model(LAST, sizes, **upper, **rows)


def with_inner_transposes(last: Model) -> Model:
    """The same with channels first at both ends."""
    changed = onnx.ModelProto()
    changed.CopyFrom(last)
    graph = changed.graph
    del graph.node[0]
    graph.node[0].input[0] = "image"
    graph.node[-1].output[0] = "inside"
    graph.node.append(onnx.helper.make_node("Transpose", ["inside"], ["Y"], perm=[0, 3, 1, 2]))
    for value in (graph.input[0], graph.output[0]):
        n, h, w, c = (dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for dim, size in zip(value.type.tensor_type.shape.dim, (n, c, h, w), strict=True):
            dim.dim_value = size
    return changed


@pytest.mark.parametrize("engine", ["ort", "reference"])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(("sizes", "at_ends"), [("all differ", True), ("all differ", False), ("none differs", False)])
def test_all_values_are_paired(sizes: str, at_ends: bool, swapped: bool, engine: str) -> None:
    """Where all sizes are equal, nothing tells an input with channels last."""
    first, last = both(SIZES[sizes])
    models = first, last if at_ends else with_inner_transposes(last)
    found = diff(*(reversed(models) if swapped else models), engine=engine)
    assert found.verdict == "agree", str(found)
    assert alike(first, last) <= paired(found)
    assert {row.status for row in found.rows} <= {"equal", "noise"}
    assert any("dimensions in another order" in note for note in found.findings.notes)


FAULTS: dict[str, tuple[str, Callable[[onnx.NodeProto], None]]] = {
    "another operator": ("Moved", lambda node: setattr(node, "op_type", "Sub")),
    "another activation": ("inside", lambda node: setattr(node, "op_type", "Tanh")),
    "operands swapped": ("Centred", lambda node: node.input.reverse()),
    "before the first transpose": ("X1", lambda node: node.attribute[0].ints.__setitem__(slice(4), [0, 1, 2, 1])),
    "another operand": ("Summed", lambda node: node.input.__setitem__(1, "Wide")),
    "operands of a concat swapped": ("Joined", lambda node: node.input.reverse()),
    "in a convolution": ("X3", lambda node: node.attribute[0].ints.__setitem__(slice(4), [0, 1, 2, 1])),
}


@pytest.mark.parametrize(("sizes", "seed"), [("all differ", 0), ("none differs", 0), ("none differs", 6)])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_with_channels_last_is_the_one_cause(fault: str, sizes: str, seed: int) -> None:
    """Which constants are axes, and so others, shows with some weights only."""
    first, last = both(SIZES[sizes], seed)
    result, change = FAULTS[fault]
    found = diff(first, edited(with_inner_transposes(last), result, change), seed=seed)
    assert found.verdict == "diverge"
    assert [cause.row.pair.second for cause in found.findings.causes] == [result], str(found)


@pytest.mark.parametrize(("result", "reader"), [("X2", "X3"), ("X4", "X5"), ("Deep", "Summed")])
def test_a_transpose_of_the_wrong_dimensions_is_seen(result: str, reader: str) -> None:
    """Where sizes are equal, that of other dimensions runs."""
    first, last = both(SIZES["none differs"])

    def turn(node: onnx.NodeProto) -> None:
        perm = list(node.attribute[0].ints)
        perm[2], perm[3] = perm[3], perm[2]
        node.attribute[0].ints[:] = perm

    found = diff(first, edited(with_inner_transposes(last), result, turn))
    assert found.verdict == "diverge"
    (cause,) = found.findings.causes
    assert any(name in label.split() for label in cause.nodes[1] for name in (result, reader)), str(found)


def test_an_output_in_another_order_is_a_fault_unless_the_inputs_are() -> None:
    first, last = both(SIZES["all differ"])
    inner = with_inner_transposes(last)
    del inner.graph.node[-1]
    inner.graph.node[-1].output[0] = "Y"
    inner.graph.output[0].CopyFrom(last.graph.output[0])
    found = diff(first, inner)
    assert (found.verdict, found.findings.causes) == ("diverge", ())
    text = "output 'Y' is float32 2x10x12x8 where 'y' is float32 2x8x10x12, with its dimensions in another order"
    assert found.findings.reason == text
    for models in ((first, last), (last, first)):
        accepted = diff(*models)
        assert accepted.verdict == "agree"
        assert any("with its dimensions in another order" in note for note in accepted.findings.notes)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(
    "body",
    [
        "t = Transpose<perm = [0, 2, 1]>(x) y = Relu(t)",
        "s = Sigmoid(x) y = Transpose<perm = [0, 2, 1]>(s)",
        "s = Neg(x) t = Transpose<perm = [0, 2, 1]>(s) r = Relu(t) y = Exp(r)",
    ],
)
def test_a_transpose_that_is_left_out_is_no_agreement(body: str, swapped: bool) -> None:
    """Where sizes are equal, the shape of an output does not tell."""
    text = "agraph (float[2, 4, 4] x) => (float[2, 4, 4] y) {{ " + body + " }}"
    first = model(text, {})
    second = edited(first, "t" if "t =" in body else "y", lambda node: setattr(node, "op_type", "Identity"))
    for node in second.graph.node:
        if node.op_type == "Identity":
            del node.attribute[:]
    found = diff(*((second, first) if swapped else (first, second)))
    assert found.verdict == "diverge", str(found)
    assert "dimensions in another order" in found.findings.reason


@pytest.mark.parametrize(("named", "order"), [("image", (0, 1, 2, 3)), ("image", (0, 2, 3, 1))])
def test_an_input_is_given_as_either_model_takes_it(named: str, order: tuple[int, ...]) -> None:
    image = torch.randn(2, 3, 10, 12)
    found = diff(*both(SIZES["all differ"]), {named: image.permute(order)})
    assert found.verdict == "agree"
    rows = {row.pair.second: row for row in found.rows}
    assert rows["image"].status == "equal"
    assert rows["image"].shapes == ((2, 3, 10, 12), (2, 10, 12, 3))


HEADS = """
    agraph (float[2, 6, 4, 8] q, float[2, 6, 4, 8] k) => (float[2, 4, 6, 6] scores) {{
        qt = Transpose<perm = [0, 2, 1, 3]>({query})
        kt = Transpose<perm = [0, 2, 3, 1]>({key})
        qs = Mul(qt, scale)
        scores = MatMul(qs, kt)
    }}"""


def test_what_is_computed_before_a_transpose_may_be_computed_behind_it() -> None:
    before = """
        agraph (float[2, 6, 4, 8] q, float[2, 6, 4, 8] k) => (float[2, 4, 6, 6] scores) {{
            scaled = Mul(q, scale)
            turned = Transpose<perm = [0, 2, 1, 3]>(scaled)
            kt = Transpose<perm = [0, 2, 3, 1]>(k)
            scores = MatMul(turned, kt)
        }}"""
    scale = np.float32(0.3)
    first = model(HEADS, {"query": "q", "key": "k"}, scale=scale)
    second = model(before, {}, scale=scale)
    for models in ((first, second), (second, first)):
        found = diff(*models)
        assert found.verdict == "agree", str(found)
        behind = {row.pair.first: row.pair.second for row in found.rows if row.pair.is_main}
        assert behind[models[0].graph.node[-1].input[0]] == models[1].graph.node[-1].input[0]


def test_where_both_transpose_elsewhere_a_fault_is_still_named() -> None:
    first, last = both(SIZES["all differ"])
    models = first, edited(with_inner_transposes(last), *FAULTS["in a convolution"])
    for each in models:
        turned = onnx.helper.make_node("Transpose", ["image"], ["turned"], perm=[0, 2, 3, 1])
        each.graph.node.extend([turned, onnx.helper.make_node("Exp", ["turned"], ["z"])])
        each.graph.output.append(onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, None))
    found = diff(*models)
    assert [cause.row.pair.second for cause in found.findings.causes] == ["X3"], str(found)
    assert ("deep", "Deep") in {(row.pair.first, row.pair.second) for row in found.rows}


def test_what_is_wrong_behind_a_transpose_of_both_is_the_cause() -> None:
    first = model(HEADS, {"query": "q", "key": "k"}, scale=np.float32(0.3))
    found = diff(first, edited(first, "qs", lambda node: setattr(node, "op_type", "Add")))
    (cause,) = found.findings.causes
    assert cause.row.pair.second == "qs"
    assert not any("another order" in note for note in found.findings.notes)


def test_another_transpose_of_heads_is_the_cause() -> None:
    """Both transpose there: it is no matter of how values lie in memory."""
    scale = np.float32(0.3)
    first = model(
        HEADS.replace("8]", "4]").replace("6]", "4]").replace("[2, 6", "[2, 4"), {"query": "q", "key": "k"}, scale=scale
    )
    second = edited(first, "kt", lambda node: node.attribute[0].ints.__setitem__(slice(4), [0, 2, 1, 3]))
    found = diff(first, second)
    assert [cause.row.pair.second for cause in found.findings.causes] == ["kt"], str(found)


def test_what_is_quantized_and_back_is_still_in_the_order_of_its_transpose() -> None:
    heads = """
        agraph (float[2, 6, 2, 3] x) => (float[2, 2, 6, 6] y) {{
            q = Transpose<perm = [0, 2, 1, 3]>(x)
            k = Neg(q){quantized}
            kt = Transpose<perm = [0, 1, 3, 2]>({key})
            y = MatMul(q, kt)
        }}"""
    levels = "\n kq = QuantizeLinear(k, s, z)\n kd = DequantizeLinear(kq, s, z)"
    scale = {"s": np.float32(0.05), "z": np.int8(0)}
    found = diff(
        *(model(heads, sizes, **scale) for sizes in ({"quantized": "", "key": "k"}, {"quantized": levels, "key": "kd"}))
    )
    assert [cause.row.pair.second for cause in found.findings.causes] == ["kd"], str(found)
    assert ("kt", "kt") in {(row.pair.first, row.pair.second) for row in found.rows}


MATRIX = np.random.default_rng(1).standard_normal((60, 6)).astype(np.float32)
PLACES = np.random.default_rng(2).standard_normal((2, 3, 4, 5)).astype(np.float32)
BEFORE = {"d": MATRIX, "pe": PLACES}
BEHIND = {
    "d": MATRIX.reshape(3, 4, 5, 6).transpose(1, 2, 0, 3).reshape(60, 6).copy(),
    "pe": PLACES.transpose(0, 2, 3, 1).copy(),
}
TURN, BACK = "t = Transpose<perm = [0, 2, 3, 1]>(x)", "y = Transpose<perm = [0, 3, 1, 2]>"
ALIKE = {
    "flattened": ("a = Relu(x) f = Flatten(a) y = MatMul(f, d)", f"{TURN} a = Relu(t) f = Flatten(a) y = MatMul(f, d)"),
    "a mask": ("h = Greater(x, z) y = Cast<to = 1>(h)", f"{TURN} h = Greater(t, z) g = Cast<to = 1>(h) {BACK}(g)"),
    "a mask that is transposed behind": (
        f"h = Greater(x, z) {BACK}(h)",
        "q = Transpose<perm = [0, 3, 1, 2]>(x) y = Greater(q, z)",
    ),
    "a mask of one value": (
        "a = Abs(x) h = Less(a, none) y = Cast<to = 1>(h)",
        f"{TURN} a = Abs(t) h = Less(a, none) y0 = Cast<to = 1>(h) {BACK}(y0)",
    ),
    "a mask of one value that lies otherwise": (
        "a = Abs(x) y = Less(a, none)",
        "t = Transpose<perm = [3, 1, 2, 0]>(x) a = Abs(t) m = Less(a, none) y = Transpose<perm = [3, 1, 2, 0]>(m)",
    ),
    "an axis that goes": (
        "c = Neg(x) s = ArgMax<axis = 2, keepdims = 0>(c) f = Cast<to = 1>(s) y = Neg(f)",
        f"{TURN} c = Neg(t) s = ArgMax<axis = 1, keepdims = 0>(c) f = Cast<to = 1>(s) g = Neg(f) "
        "y = Transpose<perm = [0, 2, 1]>(g)",
    ),
    "sizes of 1 that grow": (
        "g = ReduceMean(x, high) e = Tile(g, grown) j = Concat<axis = 1>(e, x) y = Relu(j)",
        f"{TURN} g = ReduceMean(t, high2) e = Tile(g, grown2) j = Concat<axis = 3>(e, t) r = Relu(j) {BACK}(r)",
    ),
    "a constant of all sizes": (
        "s = Add(x, pe) r = Relu(s) y = Exp(r)",
        f"{TURN} s = Add(t, pe) r = Relu(s) e = Exp(r) {BACK}(e)",
    ),
    "padded": ("p = Pad(x, pads) y = Exp(p)", f"{TURN} p = Pad(t, pads2) e = Exp(p) {BACK}(e)"),
    "a part": (
        "p = Slice(x, one, two, high0) y = Exp(p)",
        f"{TURN} p = Slice(t, one, two, high02) e = Exp(p) {BACK}(e)",
    ),
    "parts": (
        "p, q = Split<axis = 2, num_outputs = 2>(x) y = Sub(p, q)",
        f"{TURN} p, q = Split<axis = 1, num_outputs = 2>(t) e = Sub(p, q) {BACK}(e)",
    ),
    "a sum that runs": ("p = CumSum(x, axis) y = Exp(p)", f"{TURN} p = CumSum(t, axis2) e = Exp(p) {BACK}(e)"),
    "picked": (
        "p = Gather<axis = 2>(x, picks) y = Exp(p)",
        f"{TURN} p = Gather<axis = 1>(t, picks) u = Transpose<perm = [0, 2, 1, 3]>(p) e = Exp(u) "
        "y = Transpose<perm = [0, 3, 2, 1]>(e)",
    ),
    "the largest": (
        "p = ArgMax<axis = 2>(x) f = Cast<to = 1>(p) y = Exp(f)",
        f"{TURN} p = ArgMax<axis = 1>(t) f = Cast<to = 1>(p) e = Exp(f) {BACK}(e)",
    ),
    "a softmax": ("p = Softmax<axis = 1>(x) y = Log(p)", f"{TURN} p = Softmax(t) e = Log(p) {BACK}(e)"),
    "enlarged": (
        'p = Resize<mode = "nearest">(x, , scales) y = Exp(p)',
        f'{TURN} p = Resize<mode = "nearest">(t, , scales2) e = Exp(p) {BACK}(e)',
    ),
}
NUMBERS = {
    "z": np.float32(0.1),
    "none": np.float32(-1),
    "high": np.array([2, 3]),
    "high2": np.array([1, 2]),
    "grown": np.array([1, 1, 4, 5]),
    "grown2": np.array([1, 4, 5, 1]),
    "pads": np.array([0, 0, 1, 0, 0, 0, 0, 2]),
    "pads2": np.array([0, 1, 0, 0, 0, 0, 2, 0]),
    "picks": np.array([2, 0, 3, 1]),
    "one": np.array([1]),
    "two": np.array([3]),
    "high0": np.array([2]),
    "high02": np.array([1]),
    "axis": np.array(2),
    "axis2": np.array(1),
    "scales": np.array([1, 1, 2, 3], dtype=np.float32),
    "scales2": np.array([1, 2, 3, 1], dtype=np.float32),
}


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("name", ALIKE)
def test_what_is_the_same_agrees(name: str, swapped: bool) -> None:
    texts = ("agraph (float[2, 3, 4, 5] x) => (y) {{ " + body + " }}" for body in ALIKE[name])
    models = [model(text, {}, **NUMBERS, **c) for text, c in zip(texts, (BEFORE, BEHIND), strict=True)]
    found = diff(*(reversed(models) if swapped else models))
    assert found.verdict == "agree", str(found)


@pytest.mark.parametrize(
    "name",
    [
        "padded",
        "a part",
        "parts",
        "a sum that runs",
        "picked",
        "the largest",
        "a softmax",
        "enlarged",
        "sizes of 1 that grow",
    ],
)
def test_an_operator_that_is_told_axes_is_paired(name: str) -> None:
    texts = ("agraph (float[2, 3, 4, 5] x) => (y) {{ " + body + " }}" for body in ALIKE[name])
    models = [model(text, {}, **NUMBERS) for text in texts]
    names = alike(*models)
    assert names <= paired(diff(*models))


@pytest.mark.parametrize(
    ("sizes", "turned"),
    [("2, 1, 10, 12", "2, 10, 12, 1"), ("N, 3, H, W", "N, H, W, 3")],
    ids=["one channel", "open sizes"],
)
def test_inputs_with_channels_last(sizes: str, turned: str) -> None:
    channels = 1 if "1, 10" in sizes else 3
    weight = np.random.default_rng(0).standard_normal((8, channels, 1, 1)).astype(np.float32)
    first = model(f"agraph (float[{sizes}] x) => (y) {{{{ c = Conv(x, w) y = Exp(c) }}}}", {}, w=weight)
    last = "x0 = Transpose<perm = [0, 3, 1, 2]>(x) c0 = Conv(x0, w) c = Transpose<perm = [0, 2, 3, 1]>(c0) y = Exp(c)"
    second = model(f"agraph (float[{turned}] x) => (y) {{{{ {last} }}}}", {}, w=weight)
    image = torch.randn(2, channels, 10, 12)
    for given in (None, {"x": image}, {"x": image.permute(0, 2, 3, 1)}):
        for models in ((first, second), (second, first)):
            found = diff(*models, given)
            assert found.verdict == "agree", str(found)


def test_sizes_that_one_model_leaves_open_are_the_others() -> None:
    first = model("agraph (float[2, 3, H, W] x) => (y) {{ y = Exp(x) }}", {})
    second = model("agraph (float[N, 6, 7, 3] x) => (y) {{ y = Exp(x) }}", {})
    found = diff(first, second)
    assert found.verdict == "agree"
    assert {row.shapes for row in found.rows} == {((2, 3, 6, 7), (2, 6, 7, 3))}


def test_inputs_of_one_name_are_one_in_any_order() -> None:
    sizes, turned = "2, 3, 6, 7", "2, 6, 7, 3"
    body = "e = Exp(a) y = Sub(e, b)"
    first = model(f"agraph (float[{sizes}] a, float[{sizes}] b) => (y) {{{{ {body} }}}}", {})
    second = model(f"agraph (float[{turned}] b, float[{turned}] a) => (y) {{{{ {body} }}}}", {})
    assert diff(first, second).verdict == "agree"


def test_an_output_that_is_the_same_in_any_order_is_no_fault() -> None:
    first = model("agraph (float[4, 4] x) => (y) {{ a = Abs(x) y = Less(a, none) }}", {}, none=np.float32(-1))
    text = "agraph (float[4, 4] x) => (y) {{ t = Transpose(x) a = Abs(t) y = Less(a, none) }}"
    for models in itertools.permutations((first, model(text, {}, none=np.float32(-1)))):
        found = diff(*models)
        assert found.verdict == "agree", str(found)


def test_what_a_fault_makes_the_other_lack_is_not_taken_for_a_transpose_that_it_leaves_out() -> None:
    """Normalized once more, a value is what it was: the models hold it twice, the wrong one once."""
    body = """n = LayerNormalization(x, ones) s = {op}(n, n) d = LayerNormalization(s, ones)
        u = Transpose<perm = [0, 2, 1]>(d) y = Identity(u) z = Exp(n)"""
    texts = (f"agraph (float[3, 6, 7] x) => (y, z) {{{{ {body.format(op=op)} }}}}" for op in ("Add", "Mul"))
    first, second = (model(text, {}, ones=np.ones(7, np.float32)) for text in texts)
    found = diff(first, second)
    assert [cause.row.pair.first for cause in found.findings.causes] == ["s"], str(found)


def test_a_copy_of_what_is_transposed_is_not_held_twice() -> None:
    texts = (
        """r = Relu(x) c = Identity(r) t = Transpose<perm = [0, 2, 1]>(c) u = Exp(t) v = Sin(u)
        y = Transpose<perm = [0, 2, 1]>(v) k = Transpose<perm = [0, 2, 1]>(x) z = Cos(k)""",
        """r = Relu(x) u = {op}(r) v = Sin(u) y = Identity(v) k = Transpose<perm = [0, 2, 1]>(x) z = Cos(k)""",
    )
    signature = "agraph (float[3, 6, 7] x) => (float[3, 6, 7] y, float[3, 7, 6] z)"
    for op, causes in (("Exp", []), ("Sinh", ["u"])):
        models = (model(f"{signature} {{{{ {text} }}}}", {"op": op}) for text in texts)
        found = diff(*models)
        assert [cause.row.pair.first for cause in found.findings.causes] == causes, str(found)
