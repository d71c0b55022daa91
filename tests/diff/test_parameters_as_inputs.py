"""One model holds as constants what the other takes as inputs."""

from __future__ import annotations

import numpy as np
import pytest
from graph_text import model

from dort_compare.errors import UsageError
from dort_compare.onnx_diff import diff


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
