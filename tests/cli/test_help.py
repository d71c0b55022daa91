"""``--help`` of every command is a text that a change shows in; CONTRIBUTING.md says how it is written anew."""

from __future__ import annotations

import subprocess
import sys

import pytest
from help_texts import FOLDER, WIDTH, help_texts

TEXTS = help_texts()


@pytest.mark.parametrize("file", TEXTS)
def test_the_help_is_the_one_on_file(file):
    assert TEXTS[file] == (FOLDER / file).read_text(encoding="utf-8"), "run: python tests/cli/help_texts.py"


def test_every_file_is_of_a_command():
    assert {path.name for path in FOLDER.iterdir()} == set(TEXTS)


@pytest.mark.parametrize("file", TEXTS)
def test_it_is_readable_at_80_columns(file):
    assert max(map(len, TEXTS[file].splitlines())) <= WIDTH


def test_the_package_runs_as_the_command():
    command = [sys.executable, "-m", "dort_compare", "check", "nowhere"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (
        2,
        "dort-compare: there is no folder nowhere; compare(..., dump=FOLDER) writes a dump\n",
    )
