"""The names that people and scripts rely on."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import dort_compare
from dort_compare import errors

ROOT = Path(dort_compare.__file__).parent.parent


def test_the_public_names_are_these() -> None:
    assert set(dort_compare.__all__) == {
        "DebugBackend", "DortError", "Report", "compare", "debug_backend", "debug_compiler", "onnxrt",
    }  # fmt: skip
    assert all(hasattr(dort_compare, name) for name in dort_compare.__all__)


def test_what_is_for_tests_needs_no_import_of_its_own() -> None:
    command = [sys.executable, "-c", "import dort_compare; dort_compare.testing.assert_agrees"]
    assert subprocess.run(command, check=False).returncode == 0


def test_torch_finds_the_backends_by_name() -> None:
    found = {entry.name: entry.load() for entry in entry_points(group="torch_dynamo_backends")}
    assert found["dort"] is found["onnxrt"] is dort_compare.onnxrt
    assert found["dort_debug"] is dort_compare.debug_backend


def test_compare_takes_what_the_design_says() -> None:
    parameters = inspect.signature(dort_compare.compare).parameters
    assert list(parameters)[:3] == ["model", "args", "kwargs"]
    keywords = {"backward", "loss", "autocast", "provider", "dump"}
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in keywords)
    names = set(inspect.signature(dort_compare.debug_compiler).parameters)
    assert {"graph_module", "example_inputs", "dump_prefix", "target_opset", "storage"} <= names


def test_every_error_is_a_dort_error() -> None:
    classes = [each for each in vars(errors).values() if inspect.isclass(each) and each.__module__ == errors.__name__]
    assert all(issubclass(each, dort_compare.DortError) for each in classes)


def test_every_room_says_in_one_sentence_what_it_is_for() -> None:
    for room in (ROOT / "dort_compare").rglob("__init__.py"):
        assert room.read_text().startswith('"""'), room


def test_the_package_is_typed_and_its_two_best_known_rooms_stand_at_the_root() -> None:
    assert (ROOT / "dort_compare" / "py.typed").exists()
    for name in ("backends", "models"):
        assert (ROOT / name).resolve() == ROOT / "dort_compare" / name


def test_importing_writes_and_prints_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import dort_compare"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout + done.stderr == ""
    assert list(tmp_path.iterdir()) == []
