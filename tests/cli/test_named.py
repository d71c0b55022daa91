"""What a command line names, loaded and called."""

from __future__ import annotations

import sys

import pytest
from torch import nn

from dort_compare.cli.named import Named
from dort_compare.errors import UsageError, UserCodeError

MODEL = """
from dataclasses import dataclass
from torch import nn

@dataclass
class Config:
    width: int = 4

class Makers:
    class Inner:
        @staticmethod
        def make(width, bias=True):
            return nn.Linear(width, 2, bias=bias)

built = nn.ReLU()
number = 3

def fails():
    raise_it()

def raise_it():
    raise ValueError("no weights")

def leaves():
    raise SystemExit("usage: model")

def wraps():
    try:
        raise_it()
    except ValueError as problem:
        raise KeyError("config") from problem

def inside_torch():
    return nn.Linear(4, 2)("text")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "tiny_model.py").write_text(MODEL)
    (tmp_path / "types.py").write_text("import beside\nmake = beside.make\n")
    (tmp_path / "beside.py").write_text("from torch import nn\nmake = nn.Identity\n")
    (tmp_path / "cut.py").write_text("import nothing_like_it\n")
    (tmp_path / "broken.py").write_text("def f(:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


@pytest.mark.parametrize("place", ["tiny_model", "tiny_model.py", "./tiny_model.py"])
def test_by_module_and_by_file(folder, place):
    made = Named.of(f"{place}:Makers.Inner.make(4, bias=False)").made()
    assert isinstance(made, nn.Linear)
    assert (made.in_features, made.bias) == (4, None)
    assert Named.of(f"{place}:Config").made().width == 4
    assert isinstance(Named.of(f"{place}:built").made(), nn.ReLU)


def test_a_file_finds_its_neighbours_and_may_be_called_like_another_module(folder, monkeypatch):
    monkeypatch.chdir("/")
    kept = sys.modules["types"]
    assert isinstance(Named.of(f"{folder / 'types.py'}:make").made(), nn.Identity)
    assert sys.modules["types"] is kept


def test_a_file_that_is_named_twice_is_run_once(folder):
    assert Named.of("tiny_model.py:built").load() is Named.of(f"{folder}/tiny_model.py:built").load()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tiny_model", "'tiny_model' names nothing; give package.module:factory or path/to/file.py:factory"),
        ("tiny_model:", "'tiny_model:' names nothing"),
        ("tiny_model:make(x)", "'make(x)' is no factory; give a name, or a call with literals"),
        ("tiny_model:make(**{'a': 1})", "is no factory"),
        ("tiny_model:1 + 1", "'1 + 1' is no factory"),
        ("no_such_thing:make", "there is no module no_such_thing in this folder or among the installed packages"),
        ("tiny_model.part:make", "there is no module tiny_model.part"),
        ("no_such_file.py:make", "there is no file no_such_file.py"),
        ("tiny_model:Maker", "tiny_model has no 'Maker', did you mean 'Makers'?"),
        ("tiny_model:Makers.Outer", "tiny_model has no 'Makers.Outer'; name one that it defines"),
        ("tiny_model:number", "tiny_model:number is of type int; name a callable that returns a torch.nn.Module"),
    ],
)
def test_what_cannot_be_found_is_one_line(folder, text, message):
    with pytest.raises(UsageError) as caught:
        Named.of(text).made()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_runs_code_is_no_argument(folder):
    with pytest.raises(UsageError, match="is no factory"):
        Named.of("tiny_model:Config(__import__('os').mkdir('made'))").made()
    assert not (folder / "made").exists()


def test_their_traceback_holds_their_frames_alone(folder):
    with pytest.raises(UserCodeError, match="tiny_model:fails raised ValueError: no weights") as caught:
        Named.of("tiny_model:fails").made()
    frames = caught.value.frames
    assert [line.split(", in ")[1] for line in frames.splitlines() if line.startswith("  File")] == [
        "fails",
        "raise_it",
    ]
    assert "dort_compare" not in frames
    assert frames.endswith("ValueError: no weights\n")


def test_what_raises_inside_a_package_shows_the_line_of_theirs_that_called_it(folder):
    with pytest.raises(UserCodeError) as caught:
        Named.of("tiny_model:inside_torch").made()
    line = MODEL.splitlines().index("def inside_torch():") + 2
    files = [line for line in caught.value.frames.splitlines() if line.startswith("  File")]
    assert files == [f'  File "{folder / "tiny_model.py"}", line {line}, in inside_torch']


def test_causes_are_shown_too(folder):
    with pytest.raises(UserCodeError) as caught:
        Named.of("tiny_model:wraps").made()
    assert "The above exception was the direct cause" in caught.value.frames
    assert caught.value.frames.count("tiny_model.py") == 3


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tiny_model:leaves", "tiny_model:leaves raised SystemExit: usage: model"),
        ("cut:make", "cut raised ModuleNotFoundError: No module named 'nothing_like_it'"),
        ("broken.py:f", "broken.py raised SyntaxError: invalid syntax"),
        ("tiny_model:Makers.Inner.make", "missing 1 required positional argument: 'width'"),
    ],
)
def test_whatever_their_code_raises_is_told_as_theirs(folder, text, reason):
    with pytest.raises(UserCodeError) as caught:
        Named.of(text).made()
    assert reason in str(caught.value)
    assert "importlib" not in caught.value.frames
