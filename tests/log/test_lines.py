"""The log of a graph: its modules as it enters and leaves them, its operators beneath them."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import small_attention
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dort_compare import DebugBackend
from dort_compare.backends import CompiledGraph
from dort_compare.provenance import module_path, source_line

GOLDEN = Path(__file__).with_name("attention.txt")


class Logged:
    """What a model's compilation logs at DEBUG: the graphs, and the text of each."""

    def __init__(self, graphs: list[CompiledGraph], texts: list[str]) -> None:
        self.graphs = graphs
        self.texts = texts

    def lines(self) -> list[str]:
        return [line for text in self.texts for line in text.splitlines()]


LogOf = Callable[..., Logged]


@pytest.fixture
def log_of(caplog: pytest.LogCaptureFixture) -> LogOf:
    def log(model: Callable[..., Any], *args: Any, dynamic: bool | None = None, **options: Any) -> Logged:
        caplog.set_level(logging.DEBUG, "dort_compare.log")
        backend = DebugBackend(**options)
        result = torch.compile(model, backend=backend, dynamic=dynamic)(*args)
        if result.requires_grad:
            result.sum().backward()
        records = [record for record in caplog.records if record.name == "dort_compare.log"]
        return Logged(backend.graphs, [r.getMessage() for r in records if r.levelno == logging.DEBUG])

    return log


def test_an_attention_layer_forward_and_backward(log_of: LogOf) -> None:
    layer = small_attention.Attention()
    logged = log_of(layer, torch.randn(1, 3, 4, requires_grad=True))
    text = "\n\n".join(logged.texts).replace(str(small_attention.__file__), "small_attention.py") + "\n"
    if os.environ.get("EXPECTTEST_ACCEPT"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text(), "EXPECTTEST_ACCEPT=1 writes the log anew"


class Twice(nn.Module):
    """A module that is called twice, one that has two names, and operations of no module in between."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = self.first
        self.norm = nn.BatchNorm1d(4)
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.GELU()), nn.Linear(4, 4)])
        self.own = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.sin(self.second(self.first(x))) * self.own
        left, right = torch.split(self.norm(x), 2, -1)
        for layer in self.layers:
            x = layer(torch.cat([right, left], -1)) + x
        return F.softmax(x, -1)


def in_autocast(model: nn.Module) -> Callable[[Tensor], Tensor]:
    def run(x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(x)

    return run


def placed(text: str) -> dict[str, tuple[str, str]]:
    """From the node of every operator line to the innermost module that is entered there, and the source line."""
    entered: list[tuple[int, str]] = []
    found: dict[str, tuple[str, str]] = {}
    for line in text.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        kind, _, rest = line.strip().partition(" ")
        title = re.split(r" -> |\(", rest)[0]
        if kind == "enter":
            entered.append((depth, title))
        elif kind == "leave":
            assert entered.pop() == (depth, title)
        elif "  # " in line:
            assert depth == (entered[-1][0] + 1 if entered else 1)
            operator, source = line.rsplit("  # ", 1)
            name = operator.rsplit(" -> ", 1)[1].partition(":")[0]
            assert name not in found
            found[name] = (entered[-1][1].partition(":")[0].partition(",")[0] if entered else "", source)
    assert not entered
    return found


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("wrap", [lambda model: model, in_autocast], ids=["float32", "autocast"])
def test_every_operator_stands_once_under_its_module_with_its_line(
    log_of: LogOf, dynamic: bool | None, wrap: Callable[..., Any]
) -> None:
    logged = log_of(wrap(Twice()), torch.randn(6, 4), dynamic=dynamic, fallback=False)
    assert [graph.phase for graph in logged.graphs] == [text.split()[0] for text in logged.texts]
    for graph, text in zip(logged.graphs, logged.texts, strict=True):
        calls = {node.name: node for node in graph.graph_module.graph.nodes if node.op == "call_function"}
        found = placed(text)
        assert found.keys() == calls.keys()
        for name, (module, source) in found.items():
            if "stack_trace" in calls[name].meta:
                assert (module, source) == (module_path(calls[name]), source_line(calls[name]))


def test_calls_of_one_module_are_told_apart(log_of: LogOf) -> None:
    forward, backward = log_of(Twice(), torch.randn(6, 4)).texts
    enters = re.findall(r"enter (\S+(?:, call \d)?): Linear", forward)
    assert enters == ["first", "first, call 2", "layers.0.0", "layers.1"]
    enters = re.findall(r"enter (\S+(?:, call \d)?): Linear", backward)
    assert list(dict.fromkeys(enters)) == ["layers.1", "layers.0.0", "first", "first, call 2"]
    assert "  parameter own = primals_" in forward
    assert "gradient of norm.weight = " in backward


def test_results_of_several_are_listed_and_picked(log_of: LogOf) -> None:
    (text,) = log_of(lambda x: torch.split(x, 2, -1)[1] + 1, torch.randn(3, 4)).texts
    assert re.search(r"split\S*\(arg0_1: f32\[3, 4\], 2, -1\) -> split: \(f32\[3, 2\], f32\[3, 2\]\)", text)
    assert re.search(r"getitem\(split: .*, 1\) -> getitem\w*: f32\[3, 2\]", text)


def test_symbolic_sizes_are_shown_by_their_symbols(log_of: LogOf) -> None:
    (text,) = log_of(nn.Linear(4, 2).requires_grad_(False), torch.randn(6, 4), dynamic=True).texts
    assert re.search(r"f32\[(s\d+), 4\].* -> \w+: f32\[\1, 2\]", text)


def test_what_torch_inserts_without_a_word_stands_where_it_is_read(log_of: LogOf) -> None:
    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.eps = 1e-3  # torch makes an input of it, and casts that

        def forward(self, x: Tensor) -> Tensor:
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)

    (text,) = log_of(nn.Sequential(Norm()), torch.randn(6, 4), dynamic=True).texts
    assert "-> convert_element_type" in text
    assert text.count("enter 0: Norm") == 1


def test_casts_stand_beneath_the_operator_that_they_serve(log_of: LogOf) -> None:
    layer = nn.Linear(4, 4, bias=False).to(torch.bfloat16)
    (forward, backward) = log_of(layer, torch.randn(6, 4, dtype=torch.bfloat16)).texts
    lines = forward.splitlines()
    (at,) = [i for i, line in enumerate(lines) if "-> mm: bf16[6, 4]  #" in line]
    casts = [re.sub(r" -> .*:", " ->", line.strip()) for line in lines[at + 1 : at + 4]]
    assert casts == [
        "onnx Cast(primals_2: bf16[6, 4]) -> f32[6, 4]",
        "onnx Cast(t: bf16[4, 4]) -> f32[4, 4]",
        "onnx Cast(mm.float32: f32[6, 4]) -> bf16[6, 4]",
    ]
    assert "onnx Cast" in backward


def test_a_cast_of_the_model_is_an_operator_and_no_more(log_of: LogOf) -> None:
    (text,) = log_of(lambda x: x.to(torch.float16), torch.randn(3)).texts
    assert "dtype=torch.float16) -> " in text
    assert "onnx Cast" not in text


def test_what_runs_in_torch_says_why(log_of: LogOf) -> None:
    class Dropped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ahead, self.drop, self.behind = nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.behind(self.drop(self.ahead(x)))

    logged = log_of(Dropped(), torch.randn(6, 4))
    forward = logged.texts[0]
    assert len(logged.texts) == 2  # one for a graph, not one for a piece
    assert sum(graph.phase == "forward" for graph in logged.graphs) == 2
    (line,) = [line for line in forward.splitlines() if "in eager torch" in line]
    assert line.endswith("in eager torch: no lowering")
    assert placed(forward)["native_dropout"][0] == "drop"
    names = Counter(node.name for g in logged.graphs if g.phase == "forward" for node in g.graph_module.graph.nodes)
    assert placed(forward).keys() - names.keys() == {"native_dropout", "getitem_1"}


def test_the_graphs_of_a_higher_order_operator_stand_beneath_it(log_of: LogOf) -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, lambda x: self.linear(x).sin(), lambda x: x.cos(), (x,))

    (text,) = log_of(Branching().requires_grad_(False), torch.ones(3)).texts
    found = placed(text)
    assert found["addmm"][0] == "linear"
    assert found["sin"][0] == "true_graph_0"
    assert found["cos"][0] == "false_graph_0"
    assert found["cond"][0] == ""
