"""The cache of the fast backend: what it holds is not lowered again, and computes what it computed before."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from dort_compare import DebugBackend, provenance
from dort_compare.backends import building
from dort_compare.cache import Entry, store
from dort_compare.errors import UsageError
from dort_compare.lowering import registry

aten = torch.ops.aten


@pytest.fixture
def lowered(monkeypatch):
    """The phases of the graphs that were lowered."""
    phases, lower = [], building.lower

    def watched(graph_module, phase, opset):
        phases.append(phase)
        return lower(graph_module, phase, opset)

    monkeypatch.setattr(building, "lower", watched)
    return phases


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.DEBUG, "dort_compare.cache")
    return lambda: [record.message for record in caplog.records if record.name == "dort_compare.cache"]


def results(model, *args, **given):
    """Outputs, gradients and buffers of a model that is compiled as in another process, from the same seed."""
    torch._dynamo.reset()
    options = given.pop("options", {})
    compiled = torch.compile(model, backend="dort", options=options, **given)
    torch.manual_seed(3)
    outputs = []
    for arg in args:
        x = arg.detach().clone().requires_grad_(arg.is_floating_point())
        output = compiled(x)
        gradients = ()
        if output.requires_grad:
            leaves = [leaf for leaf in (x, *parameters(model)) if leaf.requires_grad]
            gradients = torch.autograd.grad(output.square().sum(), leaves, allow_unused=True)
        outputs.append((output.detach(), *gradients))
    return outputs, [buffer.clone() for buffer in buffers(model)]


def parameters(model):
    return list(model.parameters()) if isinstance(model, nn.Module) else []


def buffers(model):
    return list(model.buffers()) if isinstance(model, nn.Module) else []


class Normalized(nn.Module):
    """Buffers that a training step writes."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 3), nn.BatchNorm1d(3)

    def forward(self, x):
        return self.norm(self.linear(x)).tanh()


class Constants(nn.Module):
    def forward(self, x):
        return (x * torch.tensor([1.0, 2.0, 3.0, 4.0])).t().sum(0), x.t()


def rounds(x):
    return (x.bfloat16() @ x.bfloat16().t()).float() / 3


def spectrum(x):
    return torch.fft.rfft(x * 2).acos().abs() + 1


CASES = {
    "training step": (Normalized, [torch.rand(5, 4)], {}),
    "dropout, which falls back": (
        lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2)),
        [torch.rand(5, 4)],
        {},
    ),
    "dynamic shapes": (lambda: nn.Linear(4, 3), [torch.rand(5, 4), torch.rand(7, 4)], {"dynamic": True}),
    "recompiled for dynamic shapes": (lambda: nn.Linear(4, 3), [torch.rand(5, 4), torch.rand(7, 4)], {}),
    "bfloat16, with casts": (lambda: rounds, [torch.rand(5, 4)], {}),
    "a factor that is rewritten": (lambda: lambda x: (x @ x.t()) * 0.5, [torch.rand(5, 4)], {}),
    "frozen": (lambda: nn.Linear(4, 3).requires_grad_(False), [torch.arange(20).reshape(5, 4)], {}),
    "complex, which falls back": (lambda: spectrum, [torch.rand(5, 4)], {}),
    "PyTorch's exporter": (lambda: nn.Linear(4, 3), [torch.rand(5, 4)], {"options": {"exporter": "torch"}}),
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.slow) if "exporter" in case else case for case in CASES]
)
def test_the_second_process_lowers_nothing_and_computes_the_same(case, lowered, log, monkeypatch):
    make, args, given = CASES[case]
    if case == "frozen":
        args, given = [args[0] + 0.5], {"options": {"freeze": True}}
    torch.manual_seed(1)
    before = results(make(), *args, **given)
    kept = [line for line in log() if line.endswith(" made")]
    assert kept
    lowered.clear()
    monkeypatch.setattr("dort_compare.backends.building.export_with_torch", None)
    torch.manual_seed(1)
    again = results(make(), *args, **given)
    assert lowered == []
    assert [line for line in log() if line.endswith(" found")] == [line[: -len("made")] + "found" for line in kept]
    torch.manual_seed(1)
    without = results(make(), *args, **{**CASES[case][2], "options": {"cache": False}})
    assert_close(again, before, rtol=0, atol=0)
    assert_close(again, without) if case == "PyTorch's exporter" else assert_close(again, without, rtol=0, atol=0)


def test_the_debug_backend_always_lowers(lowered):
    for _ in range(2):
        torch._dynamo.reset()
        torch.compile(torch.sin, backend=DebugBackend(cache=True))(torch.rand(3))
    assert lowered == ["inference"] * 2


def test_off_and_in_a_folder_of_ones_own(lowered, tmp_path, cache_folder):
    for cache, expected in ((False, 1), (False, 2), (str(tmp_path), 3), (tmp_path, 3), (None, 4), (True, 4)):
        results(torch.sin, torch.ones(2, dtype=torch.int64), options={"cache": cache})
        assert len(lowered) == expected
    assert len(list(tmp_path.iterdir())) == len(list(cache_folder.iterdir())) == 1


@pytest.mark.parametrize("cache", [3, "", ["a"]])
def test_a_cache_that_cannot_be(cache):
    with pytest.raises(UsageError, match="give True, False or a folder"):
        DebugBackend(cache=cache)


def test_what_is_refused_is_known_the_next_time_but_not_where_it_is_an_error(lowered, caplog):
    for _ in range(2):
        results(spectrum, torch.rand(4))
    warnings = [record.message for record in caplog.records if record.name == "dort_compare"]
    assert len(warnings) > 1
    assert warnings[: len(warnings) // 2] == warnings[len(warnings) // 2 :]
    lowered.clear()
    with pytest.raises(Exception, match=r"acos .* takes a complex64 tensor"):
        results(spectrum, torch.rand(4), options={"fallback": False})
    assert lowered == ["forward"]


@pytest.mark.parametrize(
    "options",
    [
        {"target_opset": 18},
        {"rewrites": False},
        {"providers": [("cpu", {"arena_extend_strategy": "kSameAsRequested"})]},
        {"session_options": {"graph_optimization_level": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC}},
        {"exporter": "torch"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_other_options_are_other_entries(options, cache_folder):
    for given in ({}, options):
        results(torch.sin, torch.ones(2, dtype=torch.int64), options=given)
    assert len(list(cache_folder.iterdir())) == 2


def test_what_is_not_cached_says_why(log, cache_folder, monkeypatch, tmp_path):
    def not_ours(op, x):
        return op.Sin(x)

    results(torch.sin, torch.ones(2, dtype=torch.int64), options={"session_options": ort.SessionOptions()})
    assert "session_options is an object" in log()[-1]
    monkeypatch.setitem(registry._TABLE, aten.sin.default, not_ours)
    results(torch.sin, torch.ones(2, dtype=torch.int64))
    assert any("aten.sin.default has a lowering in test_cache" in line for line in log())
    results(lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), torch.ones(3))
    assert "aten.sin.default has a lowering in test_cache" in log()[-1]
    results(torch.cos, torch.ones(2, dtype=torch.int64), options={"dump": tmp_path})
    assert not cache_folder.exists()


def test_a_lowering_that_adds_a_guard_is_not_kept(log, cache_folder, monkeypatch):
    def guards(op, x):
        assert op.result.shape[0] > 4
        return op.Sin(x)

    guards.__module__ = "dort_compare.lowering"
    monkeypatch.setitem(registry._TABLE, aten.sin.default, guards)
    results(torch.sin, torch.rand(5, 4), dynamic=True)
    assert any("lowering it added guards" in line for line in log())


def test_an_entry_that_does_not_run_is_made_again(lowered, log, cache_folder):
    results(torch.sin, torch.ones(2, dtype=torch.int64))
    (path,) = cache_folder.iterdir()
    entry = Entry.of(path.read_bytes())
    model = ir.from_proto(ir.to_proto(ir.load(_onnx(path, entry))))
    next(iter(model.graph)).op_type = "NoSuchOperator"
    path.write_bytes(Entry(entry.key, entry.phase, entry.nodes, ir.to_proto(model).SerializeToString()).to_bytes())
    ((output, *_),), _ = results(torch.sin, torch.ones(2, dtype=torch.int64))
    assert_close(output, torch.ones(2).sin())
    assert lowered == ["inference"] * 2
    assert any("is made again" in line and "NoSuchOperator" in line for line in log())
    assert Entry.of(path.read_bytes()) == entry


def test_a_damaged_entry_is_made_again(lowered, cache_folder):
    results(torch.sin, torch.ones(2, dtype=torch.int64))
    (path,) = cache_folder.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    results(torch.sin, torch.ones(2, dtype=torch.int64))
    assert path.read_bytes() == whole
    assert lowered == ["inference"] * 2


def test_no_folder_is_no_error(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    store._warn_once.cache_clear()
    ((output, *_),), _ = results(torch.sin, torch.ones(2, dtype=torch.int64), options={"cache": tmp_path / "file"})
    assert_close(output, torch.ones(2).sin())
    assert [record.levelname for record in caplog.records if record.name == "dort_compare.cache"] == ["WARNING"]


def test_the_model_says_what_this_compilation_is(lowered, monkeypatch):
    """Also where the entry was written by another one."""
    models, boxed = [], building.Program.boxed
    monkeypatch.setattr(building.Program, "boxed", lambda self: (models.append(self.model), boxed(self))[1])
    for _ in range(2):
        results(torch.sin, torch.ones(2, dtype=torch.int64))
        monkeypatch.setattr("dort_compare.backends.building.compile_id", lambda: "7/1")
    assert lowered == ["inference"]
    assert [model.metadata_props.get(provenance.COMPILE_ID) for model in models] == ["0/0", "7/1"]
    origins = [[provenance.Provenance.read(node.metadata_props) for node in model.graph] for model in models]
    assert origins[0] == origins[1]
    assert origins[0][-1].fx_node == "sin"


def _onnx(path: Path, entry: Entry) -> Path:
    file = path.parent.with_name(path.parent.name + ".onnx")
    file.write_bytes(entry.model)
    return file


# Other processes.

_PROGRAM = """
import sys, torch
from torch import nn
from dort_compare.backends import building
lowered, lower = [], building.lower
def watched(graph_module, phase, opset):
    lowered.append(phase)
    return lower(graph_module, phase, opset)
building.lower = watched
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(0.5), nn.Linear(8, 2))
compiled = torch.compile(model, backend="dort", dynamic=True)
for size in (5, 6):
    loss = compiled(torch.rand(size, 4)).square().sum()
    loss.backward()
total = sum(p.grad.double().sum() for p in model.parameters()) + sum(b.double().sum() for b in model.buffers())
print(len(lowered), loss.item().hex(), total.item().hex())
"""


def started():
    command = [sys.executable, "-c", _PROGRAM]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONHASHSEED": "random"})


def test_another_process_lowers_nothing(capsys, monkeypatch):
    monkeypatch.setattr(building, "lower", building.lower)  # which the program replaces
    exec(compile(_PROGRAM, "<string>", "exec"), {})
    here = capsys.readouterr().out.split()
    there = started().communicate()[0].split()
    assert int(here[0]) > 0
    assert there[0] == "0"
    assert there[1:] == here[1:]


@pytest.mark.slow
def test_two_processes_at_once_and_one_after_them():
    both = [process.communicate()[0].split() for process in [started() for _ in range(2)]]
    after = started().communicate()[0].split()
    assert both[0][1:] == both[1][1:] == after[1:]
    assert after[0] == "0"
