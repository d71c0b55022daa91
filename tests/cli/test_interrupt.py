"""Ctrl-C ends a command also where ONNX Runtime would never come back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
from safetensors.numpy import save_file

from dort_compare.cli.interrupt import interruptible

ENDLESS = """<ir_version: 10, opset_import: ["" : 18]> agraph (float[4] x, bool go) => (float[4] y) {
    y = Loop(, go, x) <body = turn (int64 i, bool c, float[4] a) => (bool d, float[4] b) { d = Identity(c) b = Neg(a) }>
}"""
PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored in what runs in the background
import dort_compare.onnx_diff
from dort_compare.cli import main
print("ready", flush=True)
main()
"""


def interrupted(running: subprocess.Popen[str]) -> tuple[str, str]:
    """What is said at an interrupt, by a person who tries again: a module that is being imported may swallow one."""
    for _ in range(6):
        time.sleep(2)
        assert running.poll() is None
        running.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            return running.communicate(timeout=10)
    running.send_signal(signal.SIGABRT)
    raise AssertionError(f"it does not end: {running.communicate()[1]}")


@pytest.mark.slow  # it waits by the clock
def test_a_loop_without_end_can_be_interrupted(tmp_path: Path) -> None:
    model = tmp_path / "endless.onnx"
    onnx.save(onnx.parser.parse_model(ENDLESS), model)
    save_file({"x": np.ones(4, np.float32), "go": np.array(True)}, tmp_path / "inputs")
    command = [sys.executable, "-c", PROGRAM, "diff", model, model, "--inputs", tmp_path / "inputs"]
    with_stacks = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=with_stacks, **piped) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        try:
            out, err = interrupted(running)
        finally:
            running.kill()
    assert (running.returncode, out, err) == (2, "", "dort-compare: interrupted\n")


def test_what_ends_in_time_is_left_alone() -> None:
    """And nothing is left behind: no thread, no file descriptor in the place of the one before."""
    threads = threading.active_count()
    with interruptible("never said", 1):
        try:
            signal.raise_signal(signal.SIGINT)
            time.sleep(1)
        except KeyboardInterrupt:
            pass
    assert threading.active_count() == threads
    assert signal.set_wakeup_fd(-1) == -1
