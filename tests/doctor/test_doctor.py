"""``dort-compare doctor``: each fault is told with its mend, and only what stops every comparison is status 1."""

from __future__ import annotations

import json
import tempfile
from importlib import metadata
from pathlib import Path

import onnxruntime as ort
import pytest

from dort_compare.cli import main
from dort_compare.doctor import findings, machine, packages
from dort_compare.doctor.finding import Finding

REQUIRES = ["rich>=13", "torch>=2.10", "onnxruntime>=1.22", "transformers>=5; extra == 'hf'", "ruff; extra == 'dev'"]


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main(["doctor", *map(str, arguments)])
    captured = capsys.readouterr()
    return int(stopped.value.code or 0), captured.out, captured.err


def only(monkeypatch, *checks):
    monkeypatch.setattr("dort_compare.doctor.order.CHECKS", checks)


@pytest.fixture
def installed(monkeypatch):
    """The versions of what is installed, to be changed."""
    have = {"rich": "15.0", "torch": "2.13.0+cpu", "onnxruntime": "1.31.1", "transformers": "5.1"}

    def version(name):
        if name not in have:
            raise metadata.PackageNotFoundError(name)
        return have[name]

    monkeypatch.setattr(metadata, "requires", lambda _: REQUIRES)
    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(metadata, "distributions", lambda name: [name] if name in have else [])
    return have


def test_this_machine_can_compare(capsys, tmp_path):
    status, out, err = run(capsys, "--json", tmp_path / "found.json")
    assert (status, err) == (0, "")
    assert out.splitlines()[-1] == "models can be compared on the CPU"
    assert not [line for line in out.splitlines() if len(line) > 80 and "mend: " not in line and " " in line.strip()]
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["works"] is True
    states = {each["what"]: each["state"] for each in found["findings"]}
    assert states.keys() >= {"python", "torch", "onnx", "threads", "cuda", *ort.get_available_providers()}
    assert states["CPUExecutionProvider"] == states["a comparison"] == "ok"
    assert all(each["mend"] for each in found["findings"] if each["state"] != "ok")


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"rich": None}, Finding("rich", "broken", "not installed", "pip install 'rich>=13'")),
        ({"torch": "2.7"}, Finding("torch", "broken", "2.7, where >=2.10 is needed", "pip install 'torch>=2.10'")),
        ({"transformers": None}, Finding("transformers", "absent", "not installed", "pip install 'dort-compare[hf]'")),
        ({"onnxruntime": None}, Finding("onnxruntime", "broken", "not installed", "pip install 'onnxruntime>=1.22'")),
        (
            {"onnxruntime-gpu": "1.31.1"},
            Finding(
                "onnxruntime",
                "broken",
                "onnxruntime and onnxruntime-gpu overwrite each other's files",
                "pip uninstall -y onnxruntime onnxruntime-gpu && pip install 'onnxruntime>=1.22'",
            ),
        ),
    ],
)
def test_a_package_that_is_missing_or_too_old(installed, change, finding):
    installed |= {name: version for name, version in change.items() if version}
    for name in [name for name, version in change.items() if version is None]:
        del installed[name]
    found = [*packages.required(), *packages.optional()]
    assert [each for each in found if each.state != "ok"] == [finding]
    assert "ruff" not in {each.what for each in found}


def test_the_other_package_of_onnx_runtime_will_do(installed):
    installed["onnxruntime-gpu"] = installed.pop("onnxruntime")
    assert all(each.state == "ok" for each in packages.required())


@pytest.mark.parametrize("name", ["onnxruntime", "onnxruntime-gpu"])
def test_the_package_of_onnx_runtime_that_is_there_is_installed_anew(installed, name):
    installed[name] = installed.pop("onnxruntime")
    assert packages.installed_anew("onnxruntime") == f"pip install --force-reinstall {name}"


def test_a_package_that_does_not_load(monkeypatch):
    def fail(name):
        raise ImportError(f"lib{name}.so: cannot open\nshared object file")

    monkeypatch.setattr("importlib.import_module", fail)
    broken = [each for each in packages.required() if each.what == "import torch"]
    mend = "pip install --force-reinstall torch"
    reason = "ImportError: libtorch.so: cannot open shared object file"
    assert broken == [Finding("import torch", "broken", reason, mend)]


def test_a_provider_that_is_listed_and_makes_no_session(monkeypatch, capsys):
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CPUExecutionProvider", "MagicExecutionProvider"])
    only(monkeypatch, machine.providers)
    status, out, err = run(capsys)
    assert (status, err) == (0, "")
    assert "ok      CPUExecutionProvider" in out
    assert "absent  MagicExecutionProvider      listed, but makes no session: " in out


def test_no_provider_for_the_cpu_is_status_1(monkeypatch, capsys):
    monkeypatch.setattr(machine, "_refusal", lambda *_: "no kernels")
    only(monkeypatch, machine.providers)
    status, out, _ = run(capsys)
    assert status == 1
    assert out.splitlines()[-1] == "broken: CPUExecutionProvider"
    assert f"mend: {packages.installed_anew('onnxruntime')}" in out


def test_a_comparison_that_diverges_is_status_1(monkeypatch, capsys):
    import torch

    from dort_compare.lowering import registry

    monkeypatch.setitem(registry._TABLE, torch.ops.aten.gelu.default, lambda op, x, approximate="none": op.Relu(x))
    only(monkeypatch, machine.comparison)
    status, out, _ = run(capsys)
    assert status == 1
    assert "broken  a comparison                diverge" in out


def test_a_folder_that_cannot_be_written(monkeypatch):
    def fail(**_given):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", fail)
    monkeypatch.setenv("DORT_COMPARE_CACHE_DIR", str(Path.cwd() / "not" / "yet" / "there"))
    temporary, here, cache = *machine.folders(), *machine.cache()
    assert (temporary.state, here.state, cache.state) == ("broken", "absent", "absent")
    assert cache.found == f"{Path.cwd()}: Read-only file system"
    assert cache.mend == "export DORT_COMPARE_CACHE_DIR=/a/folder/of/yours"
    assert temporary.found.endswith(": Read-only file system")
    assert temporary.mend == "export TMPDIR=/a/folder/of/yours"


def test_a_check_that_raises_is_broken_and_stops_no_other(monkeypatch):
    def falls():
        raise RuntimeError("two\nlines")

    only(monkeypatch, falls, machine.threads)
    first, second = findings()
    assert (first.what, first.state, first.found) == ("falls", "broken", "RuntimeError: two lines")
    assert second.what == "threads"


def test_a_file_that_cannot_be_written_is_told_before_anything_is_looked_at(capsys):
    status, out, err = run(capsys, "--json", "/no/such/folder/found.json")
    assert (status, out, err.count("\n")) == (2, "", 1)
