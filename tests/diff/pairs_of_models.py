"""Models that diff is tried on, with names, orders and copies that mean nothing, and faults that do."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable

import numpy as np
import onnx
from graph_text import model
from onnx import helper

from dort_compare.report.diff import Diff

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


def off(result: str) -> onnx.ModelProto:
    """The model with its normalizations, of which the one that makes ``result`` has another epsilon."""
    other = model(UNFOLDED, **normalized())
    node_of(other.graph, result).attribute.append(helper.make_attribute("epsilon", 0.5))
    return other


CONSTANT = "agraph () => (float[2] y) { y = Constant<value_floats = [-2.7182817, -7.389056]>() }"
ROLLED = """
    agraph (float[2, 8, 8, 4] x) => (float[2, 8, 8, 4] y) {
        a0 = Slice(x, two, end, one)
        a1 = Slice(x, zero, two, one)
        a = Concat<axis = 1>(a0, a1)
        b0 = Slice(a, two, end, two)
        b1 = Slice(a, zero, two, two)
        b = Concat<axis = 2>(b0, b1)
        h = MatMul(b, w)
        s = Add(h, bias)
        c0 = Slice(s, six, end, one)
        c1 = Slice(s, zero, six, one)
        c = Concat<axis = 1>(c0, c1)
        d0 = Slice(c, six, end, two)
        d1 = Slice(c, zero, six, two)
        d = Concat<axis = 2>(d0, d1)
        y = Add(x, d)
    }"""

SHARED = {
    "w": np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32),
    "bias": np.linspace(-1, 1, 4).astype(np.float32),
    **{name: np.array([number]) for number, name in enumerate(["zero", "one", "two"])},
}


def counted_from_the_end() -> onnx.ModelProto:
    """With ends that are none and starts from the end, each node its own, as PyTorch's older exporter writes them."""
    number = itertools.count()
    text = re.sub(r"\b(end|six)\b", lambda name: f"{name[0]}{next(number)}", ROLLED)
    places = {"end": 2**63 - 1, "six": -2}
    own = {f"{name}{i}": np.array([places[name]]) for name, i in re.findall(r"(end|six)(\d+)", text)}
    return model(text, **SHARED, **own)


def folded() -> dict[str, np.ndarray]:
    given = normalized()
    scale = given["g"] / np.sqrt(given["v"] + 1e-5)
    weights = {name: given[name] * scale[:, None, None, None] for name in ("w1", "w2")}
    return weights | {name: (given[name] - given["m"]) * scale + given["o"] for name in ("b1", "b2")}
