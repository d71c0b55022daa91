"""``dort-compare diff``: its exit status, and one line for what cannot be compared."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from safetensors.numpy import save_file

from dort_compare.cli import main

TEXT = (
    '<ir_version: 10, opset_import: ["" : 18]> agraph (float[4, 8] x) => (float[4, 8] y) { h = Tanh(x)\n y = Exp(h) }'
)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["diff", *map(str, arguments)])
    captured = capsys.readouterr()
    return int(stopped.value.code or 0), captured.out, captured.err


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.onnx"
    onnx.save(onnx.parser.parse_model(TEXT), path)
    return path


def saved(path: Path, text: str) -> Path:
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def test_agree_is_0_and_diverge_is_1(capsys, tmp_path, good):
    status, out, _ = run(capsys, good, good, "--all")
    assert (status, out.split(":")[0]) == (0, "agree")
    wrong = saved(tmp_path / "wrong.onnx", TEXT.replace("Tanh", "Sigmoid"))
    file = tmp_path / "report.json"
    status, out, _ = run(capsys, good, wrong, "--json", file)
    assert status == 1
    assert out.startswith("diverge: 'h' (Sigmoid)")
    assert "Sigmoid instead of Tanh" in out
    assert json.loads(file.read_text())["causes"][0]["second"] == "h"


def test_inputs_are_read_by_name(capsys, tmp_path, good):
    save_file({"x": np.zeros((4, 8), np.float32)}, tmp_path / "inputs.safetensors")
    status, out, _ = run(capsys, good, good, "--inputs", tmp_path / "inputs.safetensors")
    assert status == 0
    assert "1 given" in out


def refused(capsys, words, *arguments):
    status, out, err = run(capsys, *arguments)
    assert (status, out, err.count("\n")) == (2, "", 1), (status, out, err)
    assert words in err, err


def test_what_is_no_model_is_refused_in_a_line(capsys, tmp_path, good):
    refused(capsys, "cannot be read", good, tmp_path / "missing.onnx")
    refused(capsys, "cannot be read", good, tmp_path)
    text = tmp_path / "text.onnx"
    text.write_text("this is no model at all")
    refused(capsys, "text.onnx", good, text)
    empty = tmp_path / "empty.onnx"
    empty.write_bytes(b"")
    refused(capsys, "no ONNX model", good, empty)
    cut = tmp_path / "cut.onnx"
    cut.write_bytes(good.read_bytes()[:-9])
    refused(capsys, "cut.onnx", good, cut)
    lying = tmp_path / "lying.safetensors"
    lying.write_bytes((2**60).to_bytes(8, "little") + b"{}")
    refused(capsys, "lying.safetensors", good, good, "--inputs", lying)


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd"])
def test_constants_outside_the_folder_are_refused(capsys, tmp_path, good, location):
    model = onnx.parser.parse_model(TEXT.replace("Tanh(x)", "Add(x, w)"))
    tensor = numpy_helper.from_array(np.ones(8, np.float32), "w")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    model.graph.initializer.append(tensor)
    path = tmp_path / "outside.onnx"
    path.write_bytes(model.SerializeToString())
    refused(capsys, "files beside it only", good, path)


def test_what_no_engine_takes_is_refused_in_a_line(capsys, tmp_path, good):
    unknown = saved(tmp_path / "unknown.onnx", TEXT.replace("Tanh", "NoSuchOperator"))
    refused(capsys, "NoSuchOperator", good, unknown)
    huge = saved(tmp_path / "huge.onnx", TEXT.replace("float[4, 8] x", "float[1000000, 8000000] x"))
    refused(capsys, "too large", good, huge)


@pytest.mark.parametrize("ending", ["json", "textproto", "onnxtxt"])
@pytest.mark.filterwarnings("ignore:The onnxtxt format")
def test_a_text_that_is_no_model_is_named(capsys, tmp_path, good, ending):
    path = tmp_path / f"model.{ending}"
    path.write_text('{"schema": 1}')
    refused(capsys, f"{path} cannot be read: ", good, path)


def test_a_model_is_not_overwritten_by_the_result(capsys, good):
    before = good.read_bytes()
    refused(capsys, f"{good} is read, and what it holds would be lost", good, good, "--json", good)
    assert good.read_bytes() == before


def test_nor_is_what_holds_its_constants(capsys, tmp_path, good):
    model = onnx.parser.parse_model(TEXT)
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((8, 8), np.float32), "unread"))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    before = (tmp_path / "weights.bin").read_bytes()
    refused(capsys, "weights.bin is read, and", good, tmp_path / "m.onnx", "--json", tmp_path / "weights.bin")
    assert (tmp_path / "weights.bin").read_bytes() == before


def test_names_cannot_speak_to_the_terminal(capsys, tmp_path, good):
    model = onnx.parser.parse_model(TEXT.replace("Tanh", "Sigmoid"))
    for owner in model.graph.node:
        owner.input[:] = ["\x1b[31m[bold]h" if name == "h" else name for name in owner.input]
        owner.output[:] = ["\x1b[31m[bold]h" if name == "h" else name for name in owner.output]
    path = tmp_path / "loud.onnx"
    onnx.save(model, path)
    status, out, _ = run(capsys, good, path, "--all")
    assert status == 1
    assert "\x1b" not in out
    assert "[bold]h" in out


def broken_initializer() -> onnx.ModelProto:
    model = onnx.parser.parse_model(TEXT.replace("Exp(h)", "Mul(h, w)"))
    model.graph.initializer.append(onnx.TensorProto(name="w", data_type=1, dims=[4], raw_data=b"abc"))
    return model


def concat_of_nothing() -> onnx.ModelProto:
    model = onnx.parser.parse_model(TEXT)
    model.graph.node.append(onnx.NodeProto(op_type="Concat", output=["z"]))
    return model


@pytest.mark.parametrize("make", [broken_initializer, concat_of_nothing])
def test_a_damaged_model_is_one_line(capsys, tmp_path, good, make):
    path = tmp_path / "damaged.onnx"
    path.write_bytes(make().SerializeToString())
    status, out, err = run(capsys, path, good)
    assert (status, out, err.count("\n")) == (2, "", 1)


def test_a_missing_file_is_told_without_the_systems_number(capsys, tmp_path, good):
    missing = tmp_path / "missing.onnx"
    refused(capsys, f"{missing} cannot be read: No such file or directory; name an ONNX file\n", good, missing)
    refused(capsys, f"{tmp_path} cannot be read: Is a directory; name an ONNX file\n", good, tmp_path)
    for nothing in ("", ".", "/"):
        refused(capsys, "cannot be read: Is a directory; name an ONNX file\n", good, nothing)
        refused(capsys, "cannot be read as safetensors: Is a directory;", good, good, "--inputs", nothing)
    inputs = tmp_path / "missing.safetensors"
    words = f"{inputs} cannot be read as safetensors: No such file or directory; name a file of tensors"
    refused(capsys, words, good, good, "--inputs", inputs)


def test_a_negative_dimension_is_not_called_too_large(capsys, tmp_path, good):
    model = onnx.parser.parse_model(TEXT)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -4
    onnx.save(model, tmp_path / "negative.onnx")
    words = "negative.onnx: input 'x' is declared as -4x8, and no dimension can be negative; leave it open"
    refused(capsys, words, tmp_path / "negative.onnx", good)


def test_a_damaged_initializer_is_told_with_its_file(capsys, tmp_path, good):
    model = onnx.parser.parse_model(TEXT.replace("Tanh(x)", "Add(x, w)"))
    model.graph.initializer.append(onnx.TensorProto(name="w", data_type=1, dims=[8], raw_data=bytes(7)))
    onnx.save(model, tmp_path / "damaged.onnx")
    words = "damaged.onnx cannot be read: constant 'w', FLOAT 8, takes 32 bytes and has 7"
    refused(capsys, words, good, tmp_path / "damaged.onnx")


def test_the_inputs_of_a_dump_are_named_where_random_ones_were_taken(capsys, tmp_path, good):
    status, out, _ = run(capsys, good, good)
    assert (status, "--inputs" in out) == (0, False)
    beside = tmp_path / "good.inputs.safetensors"
    save_file({"x": np.ones((4, 8), np.float32)}, beside)
    assert run(capsys, good, good)[1].splitlines()[-1] == f"the inputs of the dump: --inputs {beside}"
    assert "--inputs" not in run(capsys, good, good, "--inputs", beside)[1]
    text = "agraph (float[4, 8] x, float[8] w1, float[8] w2) => (float[4, 8] y) { h = Mul(x, w1) y = Add(h, w2) }"
    held = "agraph (float[4, 8] x) => (float[4, 8] y) { h = Mul(x, v1) y = Add(h, v2) }"
    one, other = (
        saved(tmp_path / f"{name}.onnx", f'<ir_version: 10, opset_import: ["" : 18]> {each}')
        for name, each in {"good": text, "held": held}.items()
    )
    constants = [numpy_helper.from_array(np.ones(8, np.float32) * i, f"v{i}") for i in (1, 2)]
    model = onnx.load(other)
    model.graph.initializer.extend(constants)
    onnx.save(model, other)
    status, _, err = run(capsys, one, other)
    assert (status, err.count("\n")) == (2, 1)
    assert err.endswith(f"give --inputs {beside}\n")
