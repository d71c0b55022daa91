"""Names, and where a node comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import Tensor, fx, nn

from dort_compare import provenance
from dort_compare.provenance import (
    NameAuthority,
    Provenance,
    metadata_of,
    module_path,
    source_code,
    source_line,
    target_name,
)

TORCH = Path(torch.__file__).parent


def node(**meta: Any) -> fx.Node:
    made = fx.Graph().call_function(torch.ops.aten.add.Tensor, (1, 2))
    made.meta.update(meta)
    return made


def frames(*lines: str) -> str:
    return "".join(
        f'  File "{line.split(":")[0]}", line {line.split(":")[1]}, in forward\n    y = f(x)\n' for line in lines
    )


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((), ""),
        (("model.py:3",), "model.py:3"),
        (("train.py:9", "model.py:3"), "model.py:3"),
        (("model.py:3", f"{TORCH}/nn/modules/linear.py:134"), "model.py:3"),
        ((f"{TORCH}/nn/modules/linear.py:134",), f"{TORCH}/nn/modules/linear.py:134"),
        ((f"{TORCH}vision/ops/boxes.py:5",), f"{TORCH}vision/ops/boxes.py:5"),
        (("m\udcf6del.py:3",), r"m\udcf6del.py:3"),
        (("model.py:3", f"{TORCH}vision/ops/boxes.py:5"), f"{TORCH}vision/ops/boxes.py:5"),
    ],
)
def test_the_source_line_is_the_innermost_of_the_users(lines: tuple[str, ...], expected: str) -> None:
    assert source_line(node(stack_trace=frames(*lines))) == expected


def test_the_code_is_that_of_the_source_line() -> None:
    file = '  File "{}", line 3, in forward\n    {}\n'
    trace = file.format("model.py", "y = self.q(x)") + file.format(f"{TORCH}/nn/modules/linear.py", "return F.linear()")
    assert source_code(node(stack_trace=trace)) == "y = self.q(x)"
    assert source_code(node(stack_trace=file.format("a.py", "  ") + file.format("b.py", "z"))) == "z"
    assert source_code(node(stack_trace='  File "a.py", line 3\n  File "b.py", line 4')) == ""
    assert source_code(node()) == ""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("L['self']", ""),
        ("L['self'].layers.0.mlp", "layers.0.mlp"),
        ("L['self']._modules['layers']._modules['0'].mlp", "layers.0.mlp"),
        ("L['self'].layers[3]", "layers.3"),
        ("L['fn']._modules['1']", "1"),
        ("""L['self'].act._modules["it's"]""", "act.it's"),
        (r"""L['self'].act._modules['it\'s "so"'].x""", """act.it's "so".x"""),
        (r"L['self'].act._modules['a\\b']", r"act.a\b"),
        ("L['args'][0].layers[2]", "args.0.layers.2"),
        ("L['self'].__dict__['_modules']['layers'].0.mlp", "layers.0.mlp"),
        ("L['self'].inner.__dict__['_parameters']['weight']", "inner.weight"),
        ("L['model'].proj", "model.proj"),
        ("G['encoder']", "encoder"),
        ("self.proj", "proj"),
        ("self_attn.q_proj", "self_attn.q_proj"),
    ],
)
@pytest.mark.parametrize("key", ["nn_module_stack", "fwd_nn_module_stack"])
def test_the_module_path_is_as_in_named_modules(key: str, path: str, expected: str) -> None:
    assert module_path(node(**{key: {"0": ("L['self']", object), "1": (path, object)}})) == expected


def test_targets_are_named_as_torch_names_them() -> None:
    assert target_name(node()) == "aten.add.Tensor"
    assert target_name(fx.Graph().placeholder("x")) == "placeholder"


def test_metadata_can_be_read_back() -> None:
    written = Provenance("add", "aten.add.Tensor", "forward", "mlp", "model.py:3")
    assert Provenance.read(written.metadata()) == written
    assert Provenance.read({}) is None
    assert set(written.metadata()) == {
        f"dort_compare.{key}" for key in ("fx_node", "aten_target", "phase", "module", "source")
    }
    assert provenance.FX_NODE in written.metadata()


def test_metadata_of_a_node_of_a_model_reads_back_too() -> None:
    written = Provenance("mul_3", "aten.mul.Tensor", "forward")
    proto = onnx.NodeProto()
    for key, value in written.metadata().items():
        proto.metadata_props.add(key=key, value=value)
    assert metadata_of(proto) == written.metadata()
    assert (Provenance.read(metadata_of(proto)), metadata_of(onnx.ValueInfoProto())) == (written, {})


def test_a_name_is_minted_once() -> None:
    names = NameAuthority()
    assert [names.mint("add", "Cast"), names.mint("add", "Cast"), names.mint("add")] == [
        "add.Cast",
        "add.Cast.1",
        "add",
    ]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.proj(x))


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block(), Block()])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Configured(Stack):
    """Looks up what it does not have by itself, as models of diffusers do."""

    def __getattr__(self, name: str) -> Any:
        return 2.0 if name == "scale" else super().__getattr__(name)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.scale


def test_modules_of_a_model_that_looks_attributes_up_itself(graphs_of: Any) -> None:
    found = {
        module_path(node)
        for graph in graphs_of(Configured(), torch.randn(2, 3))
        for node in graph.graph_module.graph.nodes
    }
    assert {"layers.0", "layers.1.proj"} <= found <= dict(Configured().named_modules()).keys()


def test_forward_and_backward_nodes_know_their_module_and_line(graphs_of: Any) -> None:
    names = dict(Stack().named_modules())
    for graph in graphs_of(Stack(), torch.randn(2, 3)):
        calls = [node for node in graph.graph_module.graph.nodes if node.op == "call_function"]
        assert {module_path(call) for call in calls} <= names.keys()
        assert {"layers.0", "layers.1.proj"} <= {module_path(call) for call in calls}
        assert all(source_line(call).rsplit(":", 1)[0] == __file__ for call in calls)
