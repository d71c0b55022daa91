"""Attributes that one model writes out, and the other leaves to their defaults."""

from __future__ import annotations

import numpy as np
import pytest
from graph_text import model
from pairs_of_models import node_of

from dort_compare.onnx_diff import diff

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


def test_a_default_that_another_version_lacks_is_no_difference() -> None:
    text = "agraph (float[4, 8] x) => (float[4, 8] y) { t = Transpose<perm = [1, 0]>(x)\n y = Reshape(t, s) }"
    first, second = (model(text, s=np.array([4, 8])) for _ in range(2))
    first.opset_import[0].version = 13
    node_of(second.graph, "t").op_type = "Identity"
    del node_of(second.graph, "t").attribute[:]
    assert "allowzero" not in str(diff(first, second))
    assert "allowzero" not in str(diff(second, first))
