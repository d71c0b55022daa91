"""Names of any length are whole in files and short in what somebody reads."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from dort_compare.cli import main
from dort_compare.errors import ExecutionError, OutOfRangeError, UsageError, shortened
from dort_compare.plain import readable

LONG = "n" * 5000
TEXT = (
    f'<ir_version: 10, opset_import: ["" : 18]> agraph (float[4, 8] x) => (float[4, 8] y) {{ {LONG} = Tanh(x)\n '
    f"y = Exp({LONG}) }}"
)


def test_only_the_middle_of_a_very_long_name_is_left_out() -> None:
    assert shortened(f"no {LONG} here") == f"no {'n' * 200}...4740 more...{'n' * 60} here"
    assert shortened(f"no '{'a b ' * 1000}'") == f"no '{'a b ' * 49}a b...3742 more... {'b a ' * 14}b '"
    path = "/".join(["folder"] * 40)
    assert readable(f"{path} cannot be read\x1b") == f"{path} cannot be read\\x1b"


@pytest.mark.parametrize("kind", [UsageError, ExecutionError, OutOfRangeError])
def test_no_error_is_unbounded(kind: type[Exception]) -> None:
    assert len(str(kind(f"no {LONG}"))) < 300


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", LONG], ["check", ".", "--graph", LONG], ["repro", ".", LONG, "--out", LONG], ["bisect", LONG],
        ["diff", LONG, LONG], ["report", LONG], ["run", f"{LONG}.py:f"], ["run", f"torch.nn:{LONG}"],
        ["llama", "--part", LONG], [LONG], ["check", ".", f"--{LONG}"],
        ["run", "torch.nn:ReLU", "--input", LONG], ["run", "torch.nn:ReLU", "--json", LONG],
    ],
)  # fmt: skip
def test_no_line_of_a_wrong_call_is(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    err = capsys.readouterr().err
    assert err.startswith("dort-compare: ")
    assert err.count("\n") == 1
    assert len(err) < 1000


@pytest.mark.parametrize("flags", [[], ["--all"]])
def test_a_result_has_short_names_and_its_file_whole_ones(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "a.onnx")
    onnx.save(onnx.parser.parse_model(TEXT.replace("Tanh", "Sigmoid")), tmp_path / "b.onnx")
    files = [str(tmp_path / name) for name in ("a.onnx", "b.onnx", "found.json")]
    with pytest.raises(SystemExit, match="1"):
        main(["diff", *files[:2], "--json", files[2], *flags])
    assert max(map(len, capsys.readouterr().out.splitlines())) < 1500
    assert json.loads((tmp_path / "found.json").read_text())["causes"][0]["second"] == LONG
