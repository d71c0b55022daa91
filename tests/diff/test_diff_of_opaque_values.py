"""Two ONNX models with values that are no tensors for torch, which nothing but the nodes that make them tells."""

from __future__ import annotations

import re

import onnx
import pytest
import torch
from torch import nn

from dort_compare.onnx_diff import diff
from dort_compare.trace.graph_run import EngineName

BODIES = {
    "Loop": """(float[3, 4] x) => (float[6, 4] y) <int64 n = {2}, bool c = {1}> {
        s0 = SequenceEmpty()
        s = Loop(n, c, s0) <body = b (int64 i, bool ci, si) => (bool co, so) {
            co = Identity(ci)
            so = SequenceInsert(si, x)
        }>
        made = ConcatFromSequence<axis = 0>(s)
        y = Relu(made)
    }""",
    "If": """(float[6, 4] x, bool c) => (float[6, 4] y) <int64 two = {2}, int64 three = {3}> {
        s = If(c) <
            then_branch = t () => (a) { a = SplitToSequence<axis = 0>(x, two) },
            else_branch = e () => (b) { b = SplitToSequence<axis = 0>(x, three) }
        >
        made = ConcatFromSequence<axis = 0>(s)
        y = Relu(made)
    }""",
    "a body in a body": """(float[3, 4] x, bool d) => (float[6, 4] y) <int64 n = {2}, bool c = {1}> {
        s0 = SequenceConstruct(x, x)
        s = Loop(n, c, s0) <body = b (int64 i, bool ci, si) => (bool co, so) {
            co = Identity(ci)
            so = If(d) <
                then_branch = t () => (a) { a = Identity(si) },
                else_branch = f () => (b) { b = Identity(s0) }
            >
        }>
        made = ConcatFromSequence<axis = 0>(s)
        y = Relu(made)
    }""",
    "Loop over strings": """(float[3, 4] x) => (float[3, 4] y) <int64 n = {2}, bool c = {1}> {
        s0 = Cast<to = 8>(x)
        s, s_all, numbers = Loop(n, c, s0) <body = b (int64 i, bool ci, si) => (bool co, so, each, number) {
            co = Identity(ci)
            so = Identity(si)
            each = Identity(si)
            number = Cast<to = 1>(si)
        }>
        made = Cast<to = 1>(s)
        y = Relu(made)
    }""",
    "Scan of strings": """(float[3, 4] x) => (float[3, 4] y) {
        s0 = Cast<to = 8>(x)
        s = Scan<num_scan_inputs = 1, body = b (row) => (same) { same = Identity(row) }>(s0)
        made = Cast<to = 1>(s)
        y = Relu(made)
    }""",
}
OPERATORS = {
    "operators on strings": """(float[1, 4] x, bool[1, 4] c) => (float[3, 4] y) <int64[2] dims = {3, 4}> {
        s0 = Cast<to = 8>(x)
        s1 = Where(c, s0, s0)
        s = Expand(s1, dims)
        made = Cast<to = 1>(s)
        y = Relu(made)
    }""",
    "Constant": """(float[4] x) => (float[4] y) {
        s = Constant<value_strings = ["1", "2", "3", "4"]>()
        numbers = Cast<to = 1>(s)
        made = Mul(x, numbers)
        y = Relu(made)
    }""",
    "Constant of a tensor": """(float[4] x) => (float[4] y) {
        s = Constant<value = string[4] {"1", "2", "3", "4"}>()
        numbers = Cast<to = 1>(s)
        made = Mul(x, numbers)
        y = Relu(made)
    }""",
    "StringSplit": """(float[3] x) => (float[3] y) {
        s0 = Cast<to = 8>(x)
        s, counts = StringSplit(s0)
        n = Cast<to = 1>(counts)
        made = Add(n, x)
        y = Relu(made)
    }""",
    "another domain's QuantizeLinear": """(float[4, 8] x) => (float[4, 8] y) <float scale = {0.5}, int4 s_zero = {1}> {
        s = com.microsoft.QuantizeLinear(x, scale, s_zero)
        made = com.microsoft.DequantizeLinear(s, scale, s_zero)
        y = Relu(made)
    }""",
}
CLASSIFIERS = {
    "LinearClassifier": """LinearClassifier<coefficients = [1.0, 2.0, -1.0, 0.5], intercepts = [0.0, 0.1],
        classlabels_strings = ["a", "b"], post_transform = "SOFTMAX">""",
    "SVMClassifier": """SVMClassifier<coefficients = [1.0, -1.0], kernel_params = [0.5, 0.0, 3.0],
        kernel_type = "RBF", prob_a = [0.5], prob_b = [0.1], rho = [0.2], support_vectors = [0.5, -0.5, 1.0, 0.0],
        vectors_per_class = [1, 1], classlabels_strings = ["a", "b"]>""",
    "TreeEnsembleClassifier": """TreeEnsembleClassifier<nodes_treeids = [0, 0, 0], nodes_nodeids = [0, 1, 2],
        nodes_featureids = [0, 0, 0], nodes_modes = ["BRANCH_LEQ", "LEAF", "LEAF"], nodes_values = [0.1, 0.0, 0.0],
        nodes_truenodeids = [1, 0, 0], nodes_falsenodeids = [2, 0, 0], nodes_missing_value_tracks_true = [0, 0, 0],
        nodes_hitrates = [1.0, 1.0, 1.0], class_treeids = [0, 0, 0, 0], class_nodeids = [1, 1, 2, 2],
        class_ids = [0, 1, 0, 1], class_weights = [0.25, 0.75, 0.5, 0.125], classlabels_strings = ["a", "b"]>""",
}
ENCODED = """(int64[4] i) => (float[4] y) {
    s = ai.onnx.ml.LabelEncoder<keys_int64s = [0, 1], values_strings = ["a", "b"]>(i)
    made = ai.onnx.ml.LabelEncoder<keys_strings = ["a", "b"], values_floats = [3.0, -7.0]>(s)
    y = Relu(made)
}"""
OF_TENSORS = """(int64[4] i) => (float[4] y) {
    s = ai.onnx.ml.LabelEncoder<keys_tensor = int64[2] {0, 1}, values_tensor = string[2] {"a", "b"}>(i)
    made = ai.onnx.ml.LabelEncoder<keys_tensor = string[2] {"a", "b"}, values_tensor = float[2] {3.0, -7.0}>(s)
    y = Relu(made)
}"""
THERE_AND_BACK = """(int64[4] i) => (float[4] y) {{
    s = ai.onnx.ml.{0}(i)
    n = ai.onnx.ml.{0}(s)
    made = Cast<to = 1>(n)
    y = Relu(made)
}}"""
ZIPPED = """(float[3, 2] x) => (float[3, 2] y) {
    made = Exp(x)
    s = ai.onnx.ml.ZipMap<classlabels_strings = ["a", "b"]>(made)
    y = Relu(made)
}"""


def model(text: str, version: int = 4) -> onnx.ModelProto:
    """A model from the text of its graph; ``version`` is that of the classical operators."""
    opsets = f'"" : 21, "ai.onnx.ml" : {version}, "com.microsoft" : 1'
    return onnx.parser.parse_model(f"<ir_version: 10, opset_import: [{opsets}]> agraph {text}")


def classifying(operator: str) -> str:
    return f"(float[3, 2] x) => (float[3, 2] y) {{ s, made = ai.onnx.ml.{operator}(x) y = Relu(made) }}"


def check(graph: onnx.ModelProto, engine: EngineName = "ort") -> None:
    """It agrees with itself, where all but what is called s, s0 and so on is compared; and a fault in what is made of
    these is named."""
    found = diff(graph, graph, engine=engine)
    assert found.verdict == "agree", str(found)
    passed_over = {value.name for value in found.findings.unpaired if "no numeric tensor" in value.reason}
    named = {tensor.name for tensor in graph.graph.initializer}.union(*(node.output for node in graph.graph.node))
    assert passed_over == {name for name in named if re.match(r"s(\d|_|$)", name)}
    wrong = onnx.ModelProto.FromString(graph.SerializeToString())
    maker = next(node for node in wrong.graph.node if "made" in node.output)
    maker.output[:] = ["raw" if name == "made" else name for name in maker.output]
    wrong.graph.node.add(op_type="Neg", input=["raw"], output=["made"])
    broken = diff(graph, wrong, engine=engine)
    assert broken.first_divergence is not None, str(broken)
    assert broken.first_divergence.row.pair.second in ("raw", "made")


ENGINES = pytest.mark.parametrize("engine", ["ort", "reference"])


@ENGINES
@pytest.mark.parametrize("name", BODIES)
def test_what_bodies_make_is_no_tensor_where_none_is_made_inside(name: str, engine: EngineName) -> None:
    check(model(BODIES[name]), engine)


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_say_what_is_no_tensor(name: str) -> None:
    check(model(OPERATORS[name]))


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_labels_that_are_strings_are_passed_over(name: str) -> None:
    check(model(classifying(CLASSIFIERS[name])))


def test_the_reference_evaluator_passes_them_over_too() -> None:
    check(model(classifying(CLASSIFIERS["LinearClassifier"])), "reference")


def test_labels_that_are_numbers_are_compared() -> None:
    numbers = CLASSIFIERS["LinearClassifier"].replace('classlabels_strings = ["a", "b"]', "classlabels_ints = [5, 7]")
    graph = model(classifying(numbers))
    found = diff(graph, graph)
    assert "s" in {row.pair.second for row in found.rows}


@ENGINES
def test_strings_of_an_encoder_are_passed_over_and_not_what_it_makes_of_strings(engine: EngineName) -> None:
    check(model(ENCODED), engine)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (OF_TENSORS, 4),
        (THERE_AND_BACK.format('LabelEncoder<classes_strings = ["a", "b"]>'), 1),
        (THERE_AND_BACK.format('CategoryMapper<cats_int64s = [0, 1], cats_strings = ["a", "b"]>'), 1),
        (ZIPPED, 1),
    ],
)
def test_strings_and_maps_of_classical_operators_are_passed_over(text: str, version: int) -> None:
    check(model(text, version))


@ENGINES
def test_bags_of_embeddings_agree(engine: EngineName) -> None:
    class Bags(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bag = nn.EmbeddingBag(10, 4, mode="sum")

        def forward(self, index: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
            return self.bag(index, offsets).relu()

    given = {"index": torch.tensor([1, 2, 4, 5, 4, 3]), "offsets": torch.tensor([0, 4])}
    program = torch.onnx.export(Bags().eval(), tuple(given.values()), dynamo=True, verbose=False)
    assert program is not None
    graph = program.model_proto
    assert "Loop" in {node.op_type for node in graph.graph.node}
    assert diff(graph, graph, given, engine=engine).verdict == "agree"


IN_PARTS = {
    "Split": "q, k, v = Split<axis = -1>(l, sizes)",
    "sequence": """
        sq = SplitToSequence<axis = -1>(l, sizes)
        q = SequenceAt(sq, zero)
        k = SequenceAt(sq, one)
        v = SequenceAt(sq, two)
    """,
}


def in_parts(how: str, epsilon: float = 1e-5, add: str = "Add") -> onnx.ModelProto:
    """A norm and a bias, cut in three, which are multiplied."""
    ones, bias = ", ".join("1" * 12), ", ".join("321" * 4)
    constants = (
        "int64[3] sizes = {4, 4, 4}, int64 zero = {0}, int64 one = {1}, int64 two = {2}, "
        f"float[12] ones = {{{ones}}}, float[12] bias = {{{bias}}}"
    )
    return model(f"""(float[5, 12] x) => (float[5, 4] z) <{constants}> {{
        n = LayerNormalization<epsilon = {epsilon:.6f}>(x, ones)
        l = {add}(n, bias)
        {IN_PARTS[how]}
        qk = Mul(q, k)
        p = Softmax(qk)
        z = Mul(p, v)
    }}""")


@pytest.mark.parametrize("first", IN_PARTS)
@pytest.mark.parametrize("second", IN_PARTS)
def test_a_fault_before_a_sequence_is_named_at_its_node(first: str, second: str) -> None:
    right = in_parts(first)
    assert diff(right, in_parts(second)).verdict == "agree"
    for name, wrong in {"n": in_parts(second, epsilon=0.5), "l": in_parts(second, add="Sub")}.items():
        found = diff(right, wrong)
        assert found.first_divergence is not None
        assert found.first_divergence.row.pair.second == name, str(found)


def returning(output: str, *nodes: str) -> onnx.ModelProto:
    return model(f"(float[3, 4] x) => (float[3, 4] z{output}) {{ z = Relu(x) {' '.join(nodes)} }}")


@pytest.mark.parametrize(("dtype", "number"), [("float8e4m3fn", 17), ("float8e5m2", 19), ("int4", 22), ("uint4", 21)])
def test_outputs_in_a_few_bits_are_compared(dtype: str, number: int) -> None:
    right = returning(f", {dtype}[3, 4] t", f"t = Cast<to = {number}>(x)")
    wrong = returning(f", {dtype}[3, 4] t", "e = Neg(x)", f"t = Cast<to = {number}>(e)")
    assert diff(right, right).verdict == "agree"
    found = diff(right, wrong)
    assert found.first_divergence is not None
    assert found.first_divergence.row.pair.second.startswith("t as "), str(found)
    assert diff(right, returning("")).verdict == "diverge"
    if number < 20:
        other = returning(", int4[3, 4] t", "t = Cast<to = 22>(x)")
        assert diff(right, other).verdict == "diverge"


def test_outputs_that_are_not_compared_are_told_and_missed() -> None:
    """Sequences and strings."""
    right = returning(", seq(float[3, 4]) t", "t = SplitToSequence<axis = 0>(x)")
    strings = returning(", string[3, 4] t", "t = Cast<to = 8>(x)")
    for each in (right, strings):
        found = diff(each, each)
        assert found.verdict == "agree"
        assert "output 't' of second is no numeric tensor, and was not compared" in str(found)
        assert "does not return 't', an output of first" in str(diff(each, returning("")))
