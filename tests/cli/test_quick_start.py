"""What must not wait for torch: help and completion."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dort_compare import models
from dort_compare.api import MAX_RUNS
from dort_compare.backends.options import EXPORTERS
from dort_compare.cli import commands, options
from dort_compare.log import MOST_VERBOSE
from dort_compare.trace import four_executions

ASK_ALL = """
import sys
from dort_compare.cli import commands, main
for arguments in [["--help"], ["--version"], ["frobnicate"], *([name, "--help"] for name in commands.commands)]:
    try:
        main(arguments)
    except SystemExit:
        pass
    heavy = {"torch", "onnx", "onnxruntime", "numpy", "rich"} & sys.modules.keys()
    assert not heavy, (arguments, heavy)
"""


def test_no_help_imports_torch():
    done = subprocess.run([sys.executable, "-c", ASK_ALL], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Usage: dort-compare run [OPTIONS] FACTORY" in done.stdout


@pytest.mark.parametrize(
    ("words", "offers"),
    [("dort-compare ru", {"plain,run"}), ("dort-compare run --mixed ", {"plain,bf16", "plain,fp16"})],
)
def test_the_shell_completes(words, offers):
    asked = {"_DORT_COMPARE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    ask = [sys.executable, "-c", "from dort_compare.cli import main; main()"]
    done = subprocess.run(ask, capture_output=True, text=True, check=True, env={**os.environ, **asked})
    assert offers <= set(done.stdout.split())


def test_the_choices_of_the_command_are_those_of_the_rooms_below():
    assert options.PARTS == models.PARTS
    assert options.SOURCES == models.SOURCES
    assert options.EXPORTERS == EXPORTERS
    assert options.MEMORY == four_executions.MEMORY
    assert options.MAX_RUNS == MAX_RUNS
    assert options.MOST_VERBOSE == MOST_VERBOSE


def test_every_command_has_one_line_for_the_list():
    assert all(command.short_help for command in commands.commands.values())
