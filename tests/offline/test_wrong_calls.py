"""Wrong arguments, and names and files that do not belong to one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
from other_models import own, run, saved

from dort_compare.errors import DumpError, UsageError
from dort_compare.offline import bisected, check


def test_names_of_strangers_do_not_speak_to_the_terminal(copy: Path) -> None:
    """In a process of its own: what is logged goes to the terminal only where nobody listens."""
    model = own(copy)
    model.graph.output[0].name = "q\x1b[31m\nagree: all"
    onnx.save(model, copy / "model_0.onnx")
    program = "from dort_compare.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program, "check", copy], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize("name", ["manifest.json", "model_0.onnx", "model_1.inputs.safetensors"])
@pytest.mark.parametrize("option", ["--json", "--html"])
def test_a_report_does_not_take_the_place_of_what_is_read(
    dump: Path, capsys: pytest.CaptureFixture[str], name: str, option: str
) -> None:
    before = (dump / name).read_bytes()
    status, out, err = run(capsys, dump, option, dump / name)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert f"{name} is read, and what it holds would be lost; choose another file" in err
    assert (dump / name).read_bytes() == before


def test_a_report_may_lie_in_the_dump(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert run(capsys, copy, "--json", copy / "report.json")[0] == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"engine": "onnxruntime"}, "unknown engine 'onnxruntime'; choose ort or reference"),
        ({"repeats": 0}, "repeats is 0; give a whole number, at least 1"),
        ({"memory": "all"}, "memory is 'all'; give a whole number"),
    ],
)
def test_a_wrong_argument_is_refused(dump: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(dump, **given)


def test_bisected_refuses_a_wrong_call_before_it_is_iterated(dump: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no graph '7'"):
        bisected(dump, 7)
    with pytest.raises(DumpError, match="there is no folder"):
        bisected(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="can stand for one graph only"):
        bisected(dump, model=saved(own(dump), tmp_path))
