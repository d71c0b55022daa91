"""Models with large constants: in two files, both or none, and never read from elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest
import torch

from dort_compare.dump import DumpWriter, graphs_in, model_file, staged
from dort_compare.dump import files as dump_files
from dort_compare.errors import DumpError

GRAPH = torch.fx.symbolic_trace(torch.nn.Identity())


def large_model() -> ir.Model:
    graph = ir.Graph([], [], nodes=[], name="g", opset_imports={"": 20})
    tensor = ir.tensor(torch.arange(400.0).numpy(), name="weight")
    graph.register_initializer(ir.Value(name="weight", const_value=tensor))
    return ir.Model(graph, ir_version=10)


@pytest.fixture
def dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dump of one graph whose constants stand in a file of their own."""
    monkeypatch.setattr(model_file, "INLINE", 1000)
    DumpWriter.in_folder(tmp_path / "dump").add_graph(large_model(), GRAPH, "inference")
    return tmp_path / "dump"


def with_location(dump: Path, location: str) -> None:
    """Has the model say that its constants are in ``location``."""
    model = onnx.load(dump / "model_0.onnx", load_external_data=False)
    next(entry for entry in model.graph.initializer[0].external_data if entry.key == "location").value = location
    (dump / "model_0.onnx").write_bytes(model.SerializeToString())


def test_the_constants_stand_beside_the_model(dump: Path) -> None:
    assert sorted(path.name for path in dump.iterdir()) == [
        "manifest.json", "model_0.fx.json", "model_0.onnx", "model_0.onnx.data", "model_0.txt",
    ]  # fmt: skip
    entry = json.loads((dump / "manifest.json").read_text())["graphs"]["model_0"]
    assert (entry["onnx"], entry["data"]) == ("model_0.onnx", "model_0.onnx.data")
    assert (dump / "model_0.onnx").stat().st_size < 1000
    (graph,) = graphs_in(dump)
    assert onnx.numpy_helper.to_array(graph.model().graph.initializer[0]).tolist() == list(range(400))
    assert not onnx.external_data_helper.uses_external_data(graph.model().graph.initializer[0])


def test_others_read_it_too(dump: Path) -> None:
    model = onnx.load(dump / "model_0.onnx")
    assert onnx.numpy_helper.to_array(model.graph.initializer[0])[399] == 399


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "other.data", "sub/model_0.onnx.data"])
def test_constants_from_elsewhere_are_refused(dump: Path, location: str) -> None:
    (dump.parent / "secret").write_bytes(bytes(1600))
    (dump / "other.data").write_bytes(bytes(1600))
    with_location(dump, location)
    with pytest.raises(DumpError, match=r"keeps constants in .*; they may stand in model_0\.onnx\.data only") as caught:
        graphs_in(dump)[0].model()
    assert "\n" not in str(caught.value)


def test_a_place_that_is_no_number_is_told(dump: Path) -> None:
    model = onnx.load(dump / "model_0.onnx", load_external_data=False)
    entry = next(e for e in model.graph.initializer[0].external_data if e.key == "offset")
    entry.value = "far"
    (dump / "model_0.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(DumpError, match=r"constant '.*' lies at no place of a file: .*'far'"):
        graphs_in(dump)[0].model()


def test_a_folder_holds_no_constants(dump: Path) -> None:
    with_location(dump, ".")
    with pytest.raises(DumpError, match=r"keeps constants in '\.'; they may stand in files beside it only"):
        model_file.read_model(dump / "model_0.onnx", beside=True)


def test_a_link_to_elsewhere_is_refused(dump: Path) -> None:
    (dump.parent / "secret").write_bytes(bytes(1600))
    (dump / "model_0.onnx.data").unlink()
    (dump / "model_0.onnx.data").symlink_to(dump.parent / "secret")
    with pytest.raises(DumpError, match="it is not read"):
        graphs_in(dump)[0].model()


def test_constants_inside_of_nodes_are_looked_at_too(dump: Path) -> None:
    model = onnx.load(dump / "model_0.onnx", load_external_data=False)
    node = onnx.helper.make_node("Constant", [], ["c"], value=model.graph.initializer[0])
    model.graph.node.append(node)
    (dump / "model_0.onnx").write_bytes(model.SerializeToString())
    entry = next(e for e in model.graph.node[0].attribute[0].t.external_data if e.key == "location")
    entry.value = "../secret"
    (dump / "model_0.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(DumpError, match="it is not read"):
        graphs_in(dump)[0].model()


@pytest.mark.parametrize("content", [b"no model at all", None])
def test_an_unreadable_model_is_one_line(dump: Path, content: bytes | None) -> None:
    path = dump / "model_0.onnx"
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(DumpError, match=r"cannot be read|is missing") as caught:
        graphs_in(dump)[0].model()
    assert "\n" not in str(caught.value)


def test_missing_constants_are_one_line(dump: Path) -> None:
    (dump / "model_0.onnx.data").unlink()
    with pytest.raises(DumpError, match="cannot be read"):
        graphs_in(dump)[0].model()


def test_an_interrupt_leaves_no_file(dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(dump.iterdir())

    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(dump_files, "write_whole", interrupt)
    with pytest.raises(KeyboardInterrupt):
        DumpWriter.in_folder(dump).add_graph(large_model(), GRAPH, "inference")
    assert sorted(dump.iterdir()) == before


def test_a_dump_with_two_files_a_model_is_replaced_whole(dump: Path) -> None:
    with staged(dump) as stage:
        DumpWriter.in_folder(stage).add_graph(large_model(), GRAPH, "backward")
    assert [graph.phase for graph in graphs_in(dump)] == ["backward"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"raw_data": bytes(7)}, "constant 'weight', FLOAT 400, takes 1600 bytes and has 7"),
        ({"raw_data": b""}, "constant 'weight', FLOAT 400, takes 400 elements and has 0"),
        ({"data_type": 0}, "constant 'weight' is of no type"),
    ],
)
def test_a_constant_that_is_not_what_its_shape_says(tmp_path: Path, change: dict[str, object], message: str) -> None:
    model = ir.to_proto(large_model())
    for name, value in change.items():
        setattr(model.graph.initializer[0], name, value)
    path = tmp_path / "damaged.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(DumpError, match=f"damaged.onnx cannot be read: {message}"):
        model_file.read_model(path)


def test_constants_in_any_field_are_read(tmp_path: Path) -> None:
    kinds = onnx.TensorProto
    given = [
        (kinds.FLOAT, [1.5, 2, 3]), (kinds.FLOAT16, [1.5, 2, 3]), (kinds.BFLOAT16, [1.5, 2, 3]),
        (kinds.INT4, [1, 2, 3]),
        (kinds.BOOL, [True, False, True]), (kinds.COMPLEX64, [1j, 2, 3]), (kinds.DOUBLE, [1.5, 2, 3]),
        (kinds.INT64, [1, 2, 3]), (kinds.UINT64, [1, 2, 3]), (kinds.STRING, [b"a", b"b", b"c"]),
    ]  # fmt: skip
    model = ir.to_proto(large_model())
    for kind, values in given:
        model.graph.initializer.append(onnx.helper.make_tensor(f"c{kind}", kind, [3], values))
        model.graph.initializer.append(onnx.helper.make_tensor(f"e{kind}", kind, [0], []))
    onnx.save(model, tmp_path / "whole.onnx")
    assert len(model_file.read_model(tmp_path / "whole.onnx").graph.initializer) == 21
