"""What checks the pages finds what is wrong with one."""

from __future__ import annotations

import doc_commands
import pytest
from doc_output import difference

WRITTEN = """\
diverge: gelu at /tmp/x/model.py:13
  max = 0.0641 where 1.3e-06 is noise, 5 values

=   output   2x4   0
3.1 ms
"""
SHOWN = """\
diverge: gelu
  at /home/me/model.py:13
  max = 0.064 where 1.27e-06 is noise, 5 values
~ output 2x4 7.45e-08
7 ms
"""


@pytest.mark.parametrize(
    "shown",
    [
        SHOWN,
        "diverge: gelu at\n...\n~ output 2x4 0\n2.25 ms",
        "diverge: gelu\n...",
        "...\n9 ms",
    ],
)
def test_times_line_breaks_and_rounding_are_free(shown, tmp_path):
    assert difference(shown, WRITTEN.replace("/tmp/x", str(tmp_path)), tmp_path) is None


@pytest.mark.parametrize(
    "shown",
    [
        "",
        "diverge: gelu",
        "agree: gelu\n...",
        "diverge: gelu at /home/me/model.py:14\n...",
        "diverge: gelu at /home/me/model.py:13 max = 0.08\n...",
        "...\n6 values\n...",
        "...\n! output 2x4 0\n...",
        "...\n~ output 2x4 2.45e+01\n...",
        "...\n5 values\n...\ndiverge: gelu\n...",
    ],
)
def test_anything_else_is_told(shown, tmp_path):
    assert difference(shown, WRITTEN.replace("/tmp/x", str(tmp_path)), tmp_path)


@pytest.mark.parametrize(
    "line",
    ["dort-comparison run", "make coffee", "python benchmarks/coverage.py --sample-count 4", "pytest tests/none"],
)
def test_a_command_that_no_test_can_run_is_a_failure(line):
    with pytest.raises((AssertionError, SystemExit)):
        assert doc_commands.run(line).status == 0


@pytest.mark.parametrize("line", ["dort-compare run --no-such-option", "python benchmarks/none.py", "make coffee"])
def test_so_is_one_in_a_sentence(line):
    with pytest.raises(Exception, match=r"(?i)no such option|there is no program|Makefile has no"):
        doc_commands.read(line)
