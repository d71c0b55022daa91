"""What ``dort-compare diff`` costs on large models: time and peak memory of a comparison that must find one fault.

    python benchmarks/diff_cost.py --nodes 8000

The first model is a chain of residual blocks, five nodes each. The second computes the same in twice as many nodes:
every value is renamed and behind every one stands a copy (Identity, a cast to float64 and back, a reshape there and
back), operands of additions change places; one constant in the middle is off by 1e-3. The limits are 60 s and 4 GB.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from processes import peak

from dort_compare.onnx_diff import diff

ROWS, WIDTH = 64, 64
PER_BLOCK = 5


class Writer:
    """Collects nodes and constants."""

    def __init__(self, prefix: str) -> None:
        self.prefix, self.nodes, self.constants = prefix, [], []

    def add(self, op_type: str, *operands: str, **attributes: int) -> str:
        name = f"{self.prefix}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(operands), [name], **attributes))
        return name

    def constant(self, value: np.ndarray) -> str:
        name = f"{self.prefix}c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def model(self, first: str, last: str) -> onnx.ModelProto:
        value = helper.make_tensor_value_info
        shape = [ROWS, WIDTH]
        ends = [value(first, TensorProto.FLOAT, shape)], [value(last, TensorProto.FLOAT, shape)]
        graph = helper.make_graph(self.nodes, "chain", *ends, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def chain(nodes: int, *, doubled: bool, fault: int | None) -> onnx.ModelProto:
    """The chain; ``doubled`` with a copy behind every value, ``fault`` the block whose scale is off."""
    random, to = np.random.default_rng(0), Writer("b" if doubled else "a")
    x = first = f"{to.prefix}x"
    shape = to.constant(np.array([ROWS * WIDTH], dtype=np.int64))
    back = to.constant(np.array([ROWS, WIDTH], dtype=np.int64))

    def copied(name: str) -> str:
        if not doubled:
            return name
        kind = len(to.constants) % 3 + 3 * (len(to.nodes) % 2)
        if kind == 4:
            return to.add("Cast", to.add("Cast", name, to=TensorProto.DOUBLE), to=TensorProto.FLOAT)
        if kind == 5:
            return to.add("Reshape", to.add("Reshape", name, shape), back)
        return to.add("Identity", name)

    for block in range(nodes // PER_BLOCK):
        weight = to.constant((random.standard_normal((WIDTH, WIDTH)) / 8).astype(np.float32))
        scale = np.float32(random.uniform(0.5, 1.0)) * (1.001 if block == fault else 1)
        y = copied(to.add("MatMul", x, weight))
        y = copied(to.add("Tanh", y))
        y = copied(to.add("Mul", y, to.constant(np.full(WIDTH, scale, dtype=np.float32))))
        x = copied(to.add("Add", *((y, x) if doubled else (x, y))))
        x = to.add("Softsign", x)
    return to.model(first, x)


def main() -> None:
    """Times a clean pair and one with a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=8000)
    nodes = parser.parse_args().nodes
    fault = nodes // PER_BLOCK // 2
    first = chain(nodes, doubled=False, fault=None)
    for name, wrong in (("clean", None), ("one fault", fault)):
        second = chain(nodes, doubled=True, fault=wrong)
        before = time.perf_counter()
        found = diff(first, second)
        taken = time.perf_counter() - before
        sizes = f"{len(first.graph.node)} against {len(second.graph.node)} nodes"
        named = [cause.row.pair.second for cause in found.findings.causes]
        print(f"{name}: {sizes}, {found.verdict}, departs {named}, {taken:.1f} s, peak {peak() / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
