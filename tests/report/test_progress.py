"""The bar on the terminal."""

from __future__ import annotations

import io

import pytest
import torch

import dort_compare
from dort_compare.report.progress import Waiting


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_comparison_is_silent_where_stderr_is_no_terminal(capfd):
    dort_compare.compare(torch.nn.Linear(2, 2), (torch.randn(1, 2),))
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_a_comparison_shows_its_stages_on_a_terminal(monkeypatch, capfd):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    dort_compare.compare(torch.nn.Linear(2, 2), (torch.randn(1, 2),))
    assert "values of the inference graph" in terminal.getvalue()
    assert capfd.readouterr().out == ""


def test_values_pass_through_and_are_counted(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    with Waiting() as waiting:
        assert list(waiting.each("rows", iter("abc"), 3)) == ["a", "b", "c"]
    assert "3/3" in terminal.getvalue()


def test_an_error_ends_the_bar(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    with pytest.raises(ZeroDivisionError), Waiting():
        raise ZeroDivisionError
    assert "\x1b[?25h" in terminal.getvalue()  # the cursor is back


@pytest.mark.parametrize("stream", [None, object(), io.StringIO()], ids=["none", "a logger's", "closed"])
def test_a_comparison_runs_without_a_stream_to_show_it_on(monkeypatch, stream):
    if isinstance(stream, io.StringIO):
        stream.close()
    monkeypatch.setattr("sys.stderr", stream)
    assert dort_compare.compare(torch.nn.Linear(2, 2), (torch.randn(1, 2),)).verdict == "agree"
