"""``dort-compare run``: a model of the caller's, its options, exit status, and whose fault a failure is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dort_compare.cli import main
from dort_compare.lowering import registry

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(6, 8)

    def forward(self, x, scale=1.0):
        return self.up(x).tanh() * scale

def make():
    return Net(), torch.randn(3, 6)

def named():
    return Net(), ("f32[3,6]",), {"scale": 2.0}

def narrow():
    return Net(), torch.randn(3, 5)

def loss(y):
    return y.square().mean()

def no_loss(y):
    return y.shape

def off_by_one(graph, inputs):
    return lambda *args: [output + 1 for output in graph.forward(*args)]

def refuses(graph, inputs):
    raise NotImplementedError("no tanh")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("model", None)


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main(["run", *map(str, arguments)])
    captured = capsys.readouterr()
    return int(stopped.value.code or 0), captured.out, captured.err


def test_agreement_is_status_0_and_the_verdict_comes_first(capsys, tmp_path):
    status, out, err = run(capsys, "model.py:make", "--backward", "--json", "report.json")
    assert (status, err) == (0, "")
    assert out.startswith("agree: ")
    report = json.loads((tmp_path / "report.json").read_text())
    assert {row["name"] for row in report["outputs"]} == {"output", "up.weight", "up.bias"}
    assert {row["source"] for row in report["rows"] if row["target"] == "aten.tanh.default"} == {
        f"{tmp_path / 'model.py'}:{MODEL.splitlines().index('        return self.up(x).tanh() * scale') + 1}"
    }


def test_a_divergence_is_status_1_and_quiet_is_one_line(capsys, monkeypatch):
    monkeypatch.setitem(registry._TABLE, torch.ops.aten.tanh.default, lambda op, x: op.Mul(op.Tanh(x), 1.01))
    status, out, _ = run(capsys, "model:make", "-q")
    assert status == 1
    assert out.startswith("diverge: inference tanh (aten.tanh.default) at ")
    assert out.count("\n") == 1


def test_mixed_precision_a_loss_and_drawn_inputs(capsys, tmp_path):
    flags = ["--mixed", "bf16", "--loss", "model.py:loss", "--input", "f32[4,6]", "--json", "report.json"]
    status, out, _ = run(capsys, "model.py:make", "-q", *flags)
    assert status == 0, out
    report = json.loads((tmp_path / "report.json").read_text())
    assert {row["name"]: row["shape"] for row in report["outputs"]}["output"] == [4, 8]
    assert {row["name"] for row in report["outputs"] if row["kind"] == "gradient"} >= {"up.weight", "argument[0]"}
    assert {row["dtype"] for row in report["rows"]} == {"float32", "bfloat16"}


def test_the_seed_decides_weights_and_inputs(capsys, tmp_path):
    found = []
    for seed in (0, 0, 1):
        run(capsys, "model.py:named", "-q", "--seed", seed, "--dump", "dump")
        found.append((tmp_path / "dump" / "model_0.inputs.safetensors").read_bytes())
    assert found[0] == found[1] != found[2]


def test_another_backend_is_held_to_the_same_reference(capsys, tmp_path):
    flags = ["--backward", "--compile-backend", "aot_eager", "--json", "report.json"]
    assert run(capsys, "model.py:make", "-q", *flags)[0] == 0
    rows = json.loads((tmp_path / "report.json").read_text())["outputs"]
    assert {row["backend"] for row in rows} == {"debug", "aot_eager"}
    status, out, _ = run(capsys, "model.py:make", "-q", "--compile-backend", "model.py:off_by_one")
    assert status == 1
    assert out.startswith("diverge: eager output output: max |eager - compiled| = 1 where ")
    assert "in the _model_.off_by_one backend alone" in out


def test_what_the_model_raises_is_told_as_theirs(capsys, tmp_path):
    status, out, err = run(capsys, "model.py:narrow", "--backward")
    assert (status, out) == (2, "")
    assert err.count("  File ") == err.count(str(tmp_path / "model.py")) == 1
    assert err.splitlines()[-1].startswith("dort-compare: the model of model.py:narrow raised RuntimeError: mat1 and")


def test_what_we_raise_is_neither_their_mistake_nor_a_divergence(capsys, monkeypatch):
    def fail(*_args, **_kwargs):
        raise ArithmeticError("ours")

    monkeypatch.setattr("dort_compare.cli.trial.compare", fail)
    with pytest.raises(SystemExit) as exit_of:
        main(["run", "model.py:make"])
    *_, raised, told = capsys.readouterr().err.splitlines()
    assert (exit_of.value.code, raised) == (3, "ArithmeticError: ours")
    assert told == "dort-compare: an error of its own; please report it with the lines above"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["model.py:make", "--compile-backend", "inductr"],
            "unknown compile backend 'inductr', did you mean 'inductor'?",
        ),
        (["model.py:make", "--compile-backend", "model.py:refuses"], "the backend _model_.refuses failed: "),
        (["model.py:make", "--loss", "model.py:Net()"], "model.py:Net() is no function; name one, without arguments"),
        (["model.py:make", "--loss", "model.py:no_loss"], "the loss has to be a real tensor of one element"),
        (["model.py:make", "--mixed", "fp8"], "Invalid value for '--mixed': 'fp8' is not one of"),
        (["model.py:make", "--opset", "3"], "opset 3 is not supported"),
        (["model.py:make", "--json", "/no/such/folder/report.json"], "cannot write /no/such/folder/report.json"),
        (["model.py:make", "--dump", ".", "--json", "report.json"], "lies in the dump folder"),
        (["model.py:make", "--input", "f32[1000000000,1000000000]"], "not enough memory for an input of sizes"),
        (["model.py:make", "--json", "report", "--html", "./report"], "report is named twice"),
        (["model.py:make", "--json", "r" * 300], "File name too long; choose another file"),
        (["model.py:make", "--model-explorer", "r" * 300], "File name too long; choose another one"),
        (["m" * 300 + ".py:make"], "File name too long; name another file"),
        ([".model:make"], "'.model:make' names nothing"),
        (["model.py"], "'model.py' names nothing"),
        ([], "Missing argument 'FACTORY'"),
    ],
)
def test_a_wrong_call_is_one_line_and_status_2(capsys, flags, message):
    status, out, err = run(capsys, *flags)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_all_shows_every_row_and_colours_are_for_terminals(capsys, monkeypatch):
    _, out, _ = run(capsys, "model.py:make", "--all")
    assert any(line.startswith("ok ") and "aten.tanh.default" in line for line in out.splitlines())
    assert "\x1b" not in out
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    _, out, _ = run(capsys, "model.py:make")
    assert out.startswith("\x1b[32magree\x1b[0m: ")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in run(capsys, "model.py:make", "-q")[1]


def test_verbose_logs_to_stderr_and_only_then(capsys):
    status, out, err = run(capsys, "model.py:make", "-q", "--verbose", "1")
    assert status == 0
    assert err.startswith("dynamo graph 0/0: ")
    assert out.count("\n") == 1
    assert run(capsys, "model.py:make", "-q")[2] == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_a_full_stdout_is_one_line():
    code = "import dort_compare.cli as c; c.main(['--help'])"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr == "dort-compare: cannot write to standard output: No space left on device; send it elsewhere\n"
    assert done.returncode == 2


def test_a_closed_pipe_is_neither_a_verdict_nor_a_traceback():
    code = "import dort_compare.cli as c; c.commands.main = lambda *_, **__: print('x' * 10**6, flush=True); c.main([])"
    command = f'{sys.executable} -c "{code}" | head -c 1; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (141, "x", "")


@pytest.mark.parametrize("arguments", ["--help", "run --help", "cache --folder ."])
def test_a_command_whose_reader_has_gone_ends_as_others_do(arguments: str, tmp_path: Path) -> None:
    command = f"{sys.executable} -m dort_compare {arguments} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (141, "")


def test_how_many_runs_of_a_graph_are_compared(folder, capsys):
    (folder / "model.py").write_text(
        MODEL
        + """
class Loop(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()
        self.net.up = nn.Linear(6, 6)

    def forward(self, x):
        for _ in range(3):
            x = self.net(x)
            torch._dynamo.graph_break()
        return x
"""
    )
    status, out, _ = run(capsys, "model:Loop", "--input", "f32[3,6]", "--max-runs", "2")
    assert status == 0
    assert "ran 3 times: its first 2 runs were compared; max_runs=3 compares all" in " ".join(out.split())
