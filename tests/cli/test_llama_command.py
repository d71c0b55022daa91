"""The command: its steps in order, its exit status, and one line for a wrong call."""

from __future__ import annotations

import json
import re
import sys

import pytest
import torch

from dort_compare import compiled
from dort_compare.cli import main, walk
from dort_compare.dump.writer import MANIFEST
from dort_compare.errors import UsageError
from dort_compare.runtime.providers import by_itself

SMALL = ["--hidden", "32", "--heads", "4", "--kv-heads", "2", "--intermediate", "48", "--vocabulary", "50"]
SMALL += ["--seq", "8"]
STEPS = [
    "-- settings",
    "-- eager",
    "-- onnxrt backend",
    "-- debug backend",
    "-- dumped files",
    "-- FX graph",
    "-- onnxrt: inputs and initializers",
    "-- debug: inputs and initializers",
    "-- side by side",
    "-- verdict",
]


def run(capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["llama", *flags])
    captured = capsys.readouterr()
    return int(stopped.value.code or 0), captured.out, captured.err


def test_tells_its_steps_in_order_and_ends_with_the_verdict(capsys, tmp_path):
    file = tmp_path / "report.json"
    page = tmp_path / "report.html"
    flags = ["--part", "model", "--backward", "1", "--verbose", "1", "--json", str(file), "--html", str(page)]
    status, out, log = run(capsys, *SMALL, *flags)
    assert status == 0
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    graphs = ["dynamo", "forward", "forward", "dynamo", "backward", "backward"]  # of the debug backend alone
    assert [line.split()[0] for line in log.splitlines()] == graphs
    positions = [out.index(step) for step in STEPS]
    assert positions == sorted(positions)
    assert out.strip().splitlines()[-1].startswith("agree: ")
    report = json.loads(file.read_text())
    assert report["verdict"] == "agree"
    assert {row["phase"] for row in report["rows"]} == {"forward", "backward"}
    assert {row["backend"] for row in report["outputs"]} == {"debug", "onnxrt"}
    gradients = {row["name"] for row in report["outputs"] if row["kind"] == "gradient"}
    assert "layers.0.mlp.down_proj.weight" in gradients


@pytest.mark.parametrize("ortopt", ["0", "1"])
def test_the_optimized_model_is_made_by_every_optimizer(capsys, monkeypatch, ortopt):
    """Also by those that backends switch off for a model that they would harm."""
    given = []

    def stop(model, call, backend, *_):
        given.append(backend.options.session_options)
        raise UsageError("enough")

    monkeypatch.setattr(walk, "compare_with", stop)
    assert run(capsys, *SMALL, "--ortopt", ortopt)[0] == 2
    assert given == [by_itself() if ortopt == "1" else {}]


@pytest.mark.parametrize("ortopt", ["0", "1"])
def test_two_native_models_are_the_same_side_by_side(capsys, ortopt):
    _, out, _ = run(capsys, *SMALL, "--backward", "1", "--ortopt", ortopt)
    table = out[out.index("-- side by side (backward)") : out.index("-- verdict")].splitlines()
    rows = [line for line in table if line[:1] in "=~+-" and not line.startswith(("--", "= same"))]
    assert not [row for row in rows if row.startswith("~")]
    assert any("tangents_1" in row for row in rows if row.startswith("="))
    if ortopt == "0":
        assert not [row for row in rows if row.startswith(("+", "-"))]


def test_graphs_whose_inputs_are_in_another_order_are_judged_all_the_same(capsys):
    flags = ["--part", "model", "--backward", "1", "--dynamic", "1", "--mask", "1", "--batch", "2"]
    status, out, _ = run(capsys, *SMALL, *flags)
    assert status == 0
    assert "not shown: the two backends were given FX graphs that differ" in out
    assert out.strip().splitlines()[-1].startswith("agree: ")


def test_holds_the_two_exporters_against_each_other(capsys):
    status, out, _ = run(capsys, *SMALL, "--part", "decoder", "--exporter", "torch", "--ortopt", "0", "--opset", "18")
    table = out[out.index("-- side by side") :]
    assert status == 0
    assert all(f"\n{mark} " in table for mark in "=+-")


def test_a_dump_holds_both_models_and_is_replaced_whole(capsys, tmp_path, monkeypatch):
    folder = tmp_path / "dump"
    run(capsys, *SMALL, "--backward", "1", "--dump", str(folder))
    names = {path.name for path in folder.iterdir()}
    endings = ("onnx", "txt")
    assert names >= {MANIFEST, "debug_0.inputs.safetensors", "debug_1.inputs.safetensors"}
    assert names >= {f"{prefix}_{n}.{end}" for prefix in ("debug", "onnxrt") for n in (0, 1) for end in endings}
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def fail(*_args, **_kwargs):
        raise RuntimeError("power cut")

    monkeypatch.setattr(walk, "outcome_table", fail)
    with pytest.raises(SystemExit, match="3"):
        main(["llama", *SMALL, "--part", "model", "--dump", str(folder)])
    assert "RuntimeError: power cut" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    monkeypatch.undo()
    run(capsys, *SMALL, "--part", "model", "--dump", str(folder))
    assert "debug_1.onnx" not in {path.name for path in folder.iterdir()}
    assert [path.name for path in tmp_path.iterdir()] == ["dump"]


def test_nothing_is_left_behind_without_a_dump(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(capsys, *SMALL)
    assert not list(tmp_path.iterdir())


def test_a_divergence_ends_with_status_1(capsys, monkeypatch):
    real = compiled.run_compiled

    def wrong(*args, **kwargs):
        outcome = real(*args, **kwargs)
        next(iter(outcome.outputs.values())).flatten()[3] += 1
        return outcome

    monkeypatch.setattr(compiled, "run_compiled", wrong)
    status, out, _ = run(capsys, *SMALL)
    assert status == 1
    assert out.strip().splitlines()[-1].startswith("diverge: eager output output: max |eager - compiled| = 1")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_a_gpu(capsys):
    assert run(capsys, "--cuda", "1")[::2] == (
        2,
        "dort-compare: --cuda 1 needs a GPU and torch.cuda.is_available() is False; use --cuda 0\n",
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--part", "head"], "Invalid value for '--part': 'head' is not one of 'attention', 'decoder', 'model'."),
        (["--backward", "2"], "Invalid value for '--backward': '2' is not one of '0', '1'."),
        (["--layers", "0"], "Invalid value for '--layers': 0 is not in the range x>=1."),
        (["--layers", "2"], "--layers 2: part attention is one layer; leave --layers out, or choose --part model"),
        (["--layers", "2", "--part", "decoder"], "--layers 2: part decoder is one layer; leave --layers out"),
        (["--opset", "17"], "opset 17 is not supported: choose 18 to "),
        (["--part", "model", "--hidden", "65"], "hidden=65 is not divisible by heads=8"),
        (["--heads", "4", "--kv-heads", "3"], "heads=4 is not divisible by kv_heads=3"),
        (["--json", "/no/such/folder/report.json"], "cannot write /no/such/folder/report.json"),
        (["--html", "/no/such/folder/report.html"], "cannot write /no/such/folder/report.html"),
        (["--frobnicate"], "No such option '--frobnicate'"),
        (["--seed", "-1"], "Invalid value for '--seed': -1 is not in the range"),
        (["--batch", "100000000", "--seq", "1000000"], "not enough memory for 190,734,863.3 GiB: make batch, lengths"),
        (["--dump", "/no/d", "--json", "/no/d/r.json"], "cannot write /no/d/r.json"),
    ],
)
def test_a_wrong_call_is_one_line_and_status_2(capsys, flags, message):
    status, out, err = run(capsys, *flags)
    assert status == 2
    assert err.startswith("dort-compare: ")
    assert message in err
    assert err.count("\n") == 1
    assert not out


def test_no_command_shows_the_help(capsys):
    with pytest.raises(SystemExit) as stopped:
        main([])
    assert stopped.value.code == 2
    assert re.search("llama +A Llama against eager PyTorch", capsys.readouterr().err)


def test_an_unwritable_or_foreign_dump_folder_is_refused(capsys, tmp_path):
    foreign = tmp_path / "photos"
    foreign.mkdir()
    (foreign / "cat.png").write_bytes(b"cat")
    status, _, err = run(capsys, *SMALL, "--dump", str(foreign))
    assert (status, err.count("\n")) == (2, 1)
    assert "is not a dump and not empty" in err
    (tmp_path / "file").write_text("")
    status, _, err = run(capsys, *SMALL, "--dump", str(tmp_path / "file" / "dump"))
    assert (status, err.count("\n")) == (2, 1)
    assert "cannot write the folder" in err


def test_a_report_inside_the_dump_is_refused(capsys, tmp_path):
    for flag in ("--json", "--html"):
        status, _, err = run(capsys, *SMALL, "--dump", str(tmp_path), flag, str(tmp_path / "report"))
        assert (status, err.count("\n")) == (2, 1)
        assert f"{flag} {tmp_path / 'report'} lies in the dump folder" in err


def test_transformers_missing(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setitem(sys.modules, "transformers.models.llama.modeling_llama", None)
    status, _, err = run(capsys, *SMALL, "--source", "hf")
    assert (status, err.count("\n")) == (2, 1)
    assert "transformers" in err
    assert "pip install" in err


def test_says_how_half_precision_is_used_and_what_to_keep_in_float32(capsys, tmp_path):
    file = tmp_path / "report.json"
    flags = ["--mixed", "1", "--mixed-dtype", "float16", "--backward", "1", "--suggest-fp32", "--json", str(file)]
    status, out, _ = run(capsys, *SMALL, *flags)
    assert status == 0
    half = out[out.index("-- half precision") : out.index("-- verdict")]
    assert "to keep in float32: nothing: on torch's kernels every output and gradient is inside its floor" in half
    report = json.loads(file.read_text())
    assert report["suggest_fp32"]["mend"] == "none needed"
    assert {cast["to_dtype"] for cast in report["precision"]["casts"]} == {"float16", "float32"}


def test_takes_a_relative_error_to_reach(capsys):
    status, out, _ = run(capsys, *SMALL, "--mixed", "1", "--suggest-fp32", "1e-5")
    assert status == 0
    assert "to keep in float32: " in out
    assert "where 1e-05 is its floor" in out
    assert run(capsys, *SMALL, "--suggest-fp32", "2")[0] == 2
