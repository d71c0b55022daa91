"""Models that cannot stand for a graph."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from other_models import bare, own, renamed, run, saved

from dort_compare.errors import DumpError
from dort_compare.offline import check


def test_where_nothing_can_be_compared_a_model_is_refused(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = renamed(bare(own(dump)))
    names = ", ".join(value.name for value in own(dump).graph.output)
    returned = len(model.graph.output)
    del model.graph.output[1:]
    status, out, err = run(capsys, dump, "--graph", 0, "--model", saved(model, tmp_path))
    assert (status, out) == (2, "")
    assert err == (
        f"dort-compare: {tmp_path / 'other.onnx'} shares no name of a value with the graph, and its number of "
        f"outputs is 1, not {returned}, so nothing can be compared: let it return {names}, by name or in this order\n"
    )


def test_a_model_that_makes_a_value_twice_is_refused(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = own(dump)
    model.graph.node.append(model.graph.node[-1])
    status, out, err = run(capsys, dump, "--graph", 0, "--model", saved(model, tmp_path))
    assert (status, out, err.count("\n")) == (2, "", 1)
    twice = model.graph.node[-1].output[0]
    assert err.endswith(f"other.onnx makes {twice} more than once: give each result a name of its own\n")


def test_a_file_that_is_no_whole_model_says_what_is_expected(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for content in (b"", b"no model", own(dump).SerializeToString()[:-100]):
        (tmp_path / "other.onnx").write_bytes(content)
        status, out, err = run(capsys, dump, "--graph", 0, "--model", tmp_path / "other.onnx")
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert err.endswith("; name a whole ONNX file, as onnx.save writes it\n")


def test_other_models_may_keep_constants_beside_them_but_not_elsewhere(dump: Path, tmp_path: Path) -> None:
    model = own(dump)
    two = onnx.numpy_helper.from_array(torch.zeros(300).numpy(), "two")
    model.graph.initializer.append(two)
    options = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0}
    onnx.save(model, tmp_path / "other.onnx", **options)
    assert check(dump, 0, model=tmp_path / "other.onnx").verdict == "agree"
    (tmp_path / "below").mkdir()
    model = onnx.load(tmp_path / "other.onnx", load_external_data=False)
    for entry in (entry for tensor in model.graph.initializer for entry in tensor.external_data):
        entry.value = "../weights.bin" if entry.key == "location" else entry.value
    onnx.save(model, tmp_path / "below" / "other.onnx")
    with pytest.raises(DumpError, match="may stand in files beside it only"):
        check(dump, 0, model=tmp_path / "below" / "other.onnx")


def shown(*operands: str) -> Callable[[onnx.ModelProto], None]:
    """Lets an output show what is read, which is nothing or goes in a circle."""

    def change(model: onnx.ModelProto) -> None:
        name = model.graph.output[0].name
        next(node for node in model.graph.node if name in node.output).output[0] = "elsewhere"
        model.graph.node.append(onnx.helper.make_node("Identity", operands, [name]))
        model.graph.node.append(onnx.helper.make_node("Identity", [name], ["again"]))

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (shown(), "no model that runs: ONNX Runtime failed"),
        (shown("again"), "no model that runs: ONNX Runtime failed.*not acyclic"),
        (
            lambda m: setattr(m.graph.input[0], "name", "pixels"),
            "reads pixels, for which .* names that the graph.s have; pixels may be ",
        ),
        (
            lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 10),
            "as torch.float16, the dump holds torch.float32",
        ),
        (lambda m: setattr(m.graph.node[0], "op_type", "Nonsense"), "cannot be run|ONNX Runtime failed"),
    ],
)
def test_a_model_that_cannot_run_is_one_line(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Any, message: str
) -> None:
    model = own(dump)
    change(model)
    status, _, err = run(capsys, dump, "--graph", 0, "--model", saved(model, tmp_path))
    assert (status, err.count("\n")) == (2, 1), err
    with pytest.raises(Exception, match=message):
        check(dump, 0, model=tmp_path / "other.onnx")


def unreturned(model: onnx.ModelProto) -> None:
    model.graph.output[0].name = "nowhere"


def mistyped(model: onnx.ModelProto) -> None:
    for value in model.graph.value_info:
        value.type.tensor_type.elem_type = onnx.TensorProto.UINT8


def of_seven_rows(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (unreturned, "model_0.onnx is no model that runs: ONNX Runtime failed: .*nowhere"),
        (mistyped, r"model_0.onnx is no model that runs: .*tensor\(uint8\)"),
        (of_seven_rows, "model_0.onnx declares primals_1 as 7x3, the dump holds 4x3: give it that shape"),
    ],
)
def test_a_model_that_runs_in_parts_alone_is_refused(
    copy: Path, capsys: pytest.CaptureFixture[str], change: Any, message: str
) -> None:
    model = own(copy)
    change(model)
    onnx.save(model, copy / "model_0.onnx")
    status, out, err = run(capsys, copy, "--graph", 0)
    assert (status, out, err.count("\n")) == (2, "", 1), err
    assert re.search(message, err), err
