"""Runs the commands of the pages, in this process; of programs that run for long, only the options are read."""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import runpy
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import click
from doc_pages import ROOT

from dort_compare.cli import commands, main

TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"])


@dataclass(frozen=True)
class Ran:
    """What a command did; of a command that was only read, no output is known."""

    status: int
    output: str | None


class _ReadOnlyError(Exception):
    """A program has read its options, which is all that it is started for."""


def run(line: str) -> Ran:
    """Runs a command line in the current folder.

    Raises AssertionError for what no test knows how to run.
    """
    words = shlex.split(line, comments=True)
    known = {"dort-compare": _dort_compare, "make": _make, "pytest": _pytest, "python": _python}
    assert words[0] in known, f"no test knows how to run {line!r}"
    return known[words[0]](words[1:])


def read(line: str) -> None:
    """Asserts that a command within a sentence is one that exists, with options that it has."""
    program, *words = shlex.split(line)
    if program == "dort-compare":
        command = commands.commands[words[0]]
        command.make_parser(click.Context(command)).parse_args(words[1:])
    elif program == "python" and words[0] == "-m":
        assert words[1:] == [] or runpy._get_module_details(words[1])
    elif program == "python" and not _is_placeholder(words[0]):
        assert (ROOT / words[0]).exists(), f"there is no program {words[0]}"
        if words[0].startswith("benchmarks/"):
            _python(words)
    elif program in ("make", "pytest"):
        run(line)


def _is_placeholder(word: str) -> bool:
    return word.isupper()


def _dort_compare(words: Sequence[str]) -> Ran:
    return _captured(lambda: main(words))


def _make(words: Sequence[str]) -> Ran:
    assert set(words) <= TARGETS, f"the Makefile has no {set(words) - TARGETS}"
    return Ran(0, None)


def _pytest(words: Sequence[str]) -> Ran:
    assert (ROOT / words[0]).exists(), f"there are no tests {words[0]}"
    return Ran(0, None)


def _python(words: Sequence[str]) -> Ran:
    if words[:3] == ["-m", "pip", "install"]:
        return _install(words[3:])
    if words[0] == "-m":
        return _program(words[1:], lambda: runpy.run_module(words[1], run_name="__main__", alter_sys=True))
    here = words[0] if Path(words[0]).exists() else str(ROOT / words[0])
    if words[0].startswith("benchmarks/"):
        with _only_reading(here):
            return _program(words, lambda: runpy.run_path(here, run_name="__main__"))
    return _program(words, lambda: runpy.run_path(here, run_name="__main__"))


def _install(words: Sequence[str]) -> Ran:
    """Nothing is installed: the folder, its extras and the file of versions are there."""
    named = iter(words)
    for word in named:
        if word == "--constraint":
            assert (ROOT / next(named)).exists()
        elif word != "--editable":
            found = re.fullmatch(r"(\.|dort-compare)(?:\[([\w,]+)\])?", word)
            assert found, f"no test knows what pip install {word} is"
            assert set((found[2] or "dev").split(",")) <= EXTRAS
    return Ran(0, None)


def _program(words: Sequence[str], start: Callable[[], object]) -> Ran:
    with mock.patch.object(sys, "argv", [*words]):
        return _captured(start)


@contextlib.contextmanager
def _only_reading(program: str) -> Iterator[None]:
    """A program stops once argparse has read its options; what it passes on is for the Llama command."""
    assert "ArgumentParser" in Path(program).read_text(encoding="utf-8"), f"{program} would run"
    known = argparse.ArgumentParser.parse_known_args

    def parse_args(parser: argparse.ArgumentParser, *given: Any) -> None:
        _, unknown = known(parser, *given)
        assert not unknown, f"{program} has no option {unknown}"
        raise _ReadOnlyError

    def parse_known_args(parser: argparse.ArgumentParser, *given: Any) -> None:
        read(shlex.join(["dort-compare", "llama", *known(parser, *given)[1]]))
        raise _ReadOnlyError

    instead = {"parse_args": parse_args, "parse_known_args": parse_known_args}
    with mock.patch.multiple(argparse.ArgumentParser, **instead):
        yield


def _captured(start: Callable[[], object]) -> Ran:
    """The exit status of a call and what it writes to stdout and stderr, in order."""
    written = io.StringIO()
    status: object = 0
    with contextlib.redirect_stdout(written), contextlib.redirect_stderr(written):
        try:
            start()
        except SystemExit as stopped:
            status = stopped.code or 0
        except _ReadOnlyError:
            return Ran(0, None)
    return Ran(status if isinstance(status, int) else 1, written.getvalue())
