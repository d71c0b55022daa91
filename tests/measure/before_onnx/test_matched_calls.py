"""Which module of the graphs is which of eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from blocks_of_modules import assert_clean, assert_named, wrong_elu
from torch import Tensor, nn

from dort_compare import compare
from dort_compare.models import LlamaConfig, build

aten = torch.ops.aten


class Kinds(nn.Module):
    """Modules that are called twice, return dicts and tuples, compute nothing, or share their weights."""

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair()
        self.blocks = nn.ModuleList([nn.Linear(6, 6), nn.Sequential(nn.SiLU(), nn.Identity())])
        self.tied = self.blocks[0]
        self.drop = nn.Dropout(0.4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.pair(x)["a"]
        y = self.pair(y)["a"] + x
        for block in self.blocks:
            y = self.drop(block(y))
        return self.tied(y)


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> dict[str, Any]:
        return {"a": self.lin(x).tanh(), "unread": (x * 2, None)}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))])
def test_every_kind_of_module_agrees_or_is_listed_with_its_reason(seed: int) -> None:
    torch.manual_seed(seed)
    report = compare(Kinds(), (torch.randn(3, 6),), backward=True)
    assert_clean(report)
    rows = {(row.module, row.call, row.leaf, row.kind): row for row in report.modules}
    for module, call, leaf in [
        ("pair", 0, "['a']"),
        ("pair", 1, "['a']"),
        ("pair.lin", 1, ""),
        ("blocks.0", 1, ""),
        ("", 0, ""),
    ]:
        for kind in ("output", "gradient"):
            assert rows[module, call, leaf, kind].status == "ok", (module, call, kind)
    assert rows["drop", 1, "", "output"].status == "ok"
    assert rows["pair", 0, "['unread'][0]", "output"].status == "unaligned"
    assert rows["blocks.1.1", 0, "", "output"].reason == "no operation of the compiled graphs stems from it"
    assert ("tied", 0, "", "output") not in rows


class Broken(nn.Module):
    """Its blocks' code is compiled once, in two graphs, and runs for both."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))
        self.blocks = nn.ModuleList([Half(), Half()])
        self.norm = nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.norm(x) + x


class Half(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.act = nn.ELU()

    def forward(self, x: Tensor) -> Tensor:
        y = self.lin(x)
        torch._dynamo.graph_break()
        return self.act(y)


def test_modules_are_known_across_graph_breaks() -> None:
    report = compare(Broken(), (torch.randn(3, 4),), backward=True)
    assert_clean(report)
    unaligned = {(row.module, row.kind): row.reason for row in report.modules if row.status == "unaligned"}
    assert unaligned == {("first.0", "output"): "eager writes it in place afterwards"}
    assert {"blocks.0.lin", "blocks.1.lin", "blocks.1.act"} <= {row.module for row in report.modules if row.fx_node}


def test_a_departure_behind_a_graph_break_is_named_by_the_module_that_the_graph_runs_for(decompose: Any) -> None:
    model = Broken()
    with torch.no_grad():
        model.blocks[0].lin.bias.fill_(9)  # its activation takes nothing negative
    decompose(aten.elu.default, wrong_elu)
    assert_named(compare(model, (torch.randn(3, 4),), backward=True), "blocks.1.act")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("autocast", [None, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_every_module_of_a_llama_agrees(attention: str, autocast: torch.dtype | None, seed: int) -> None:
    config = LlamaConfig(hidden=32, heads=4, kv_heads=2, intermediate=48, vocabulary=50, layers=2, attention=attention)
    module, inputs = build("model", config, seq=16, seed=seed)
    report = compare(module, inputs, backward=True, autocast=autocast)
    assert_clean(report)
    assert {row.status for row in report.modules} == {"ok"}, report.modules
    called = {name for name, _ in module.named_modules() if not name.endswith(("layers", "rotary_emb"))}
    assert {row.module for row in report.modules} >= called


class Branches(nn.Module):
    """Calls modules in branches, which torch traces in plain eager too."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.cond(x.sum() > 0, lambda y: self.first(y).sin(), lambda y: self.second(y), (x,)))


def test_modules_in_branches_are_no_calls_of_python() -> None:
    report = compare(Branches(), (torch.ones(3, 4),), backward=True)
    assert report.verdict == "agree", str(report)
    assert {row.module for row in report.modules} == {"", "last"}


class Again(nn.Module):
    """Calls modules on the same value twice, and on another in between: the graph computes it once."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ELU()
        self.both = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        x = x + self.act(time)
        x = x * self.act(x)
        return x + self.act(time) * 2 + self.both(time) * self.both(time)


def test_modules_that_are_called_again_on_the_same_value_are_known_in_every_call() -> None:
    report = compare(Again(), (torch.randn(2, 4), torch.randn(2, 4, requires_grad=True)), backward=True)
    assert_clean(report)
    assert [row for row in report.modules if row.status == "unaligned"] == []
    nodes = {(row.module, row.call): row.fx_node for row in report.modules if row.kind == "output"}
    assert nodes["act", 0] == nodes["act", 2] != nodes["act", 1]
    assert nodes["both", 0] == nodes["both", 1]


def test_a_departure_is_named_in_every_call_that_was_merged(decompose: Any) -> None:
    decompose(aten.elu.default, wrong_elu)
    report = compare(Again(), (torch.randn(2, 4), torch.randn(2, 4, requires_grad=True)), backward=True)
    assert_named(report, "act")
    departing = {(row.module, row.call) for row in report.modules if (row.status, row.kind) == ("diverges", "output")}
    assert departing == {("act", 0), ("act", 1), ("act", 2), ("", 0)}


def test_nested_tensors_between_modules_are_passed_over() -> None:
    """torch's fast path packs what is padded, in plain eager alone."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    report = compare(model, (torch.randn(2, 5, 8),), {"src_key_padding_mask": padding})
    assert {row.status for row in report.rows} == {"ok"}
    (cause,) = report.causes  # what is padded is zeros on the fast path alone
    assert cause.reason.startswith("departs before ONNX")
