"""Ctrl-C, also while ONNX Runtime computes: Python's own handler waits until a kernel or a loop is done."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 2.0
"""Seconds in which an interrupted command may end by itself, so that it leaves no file half-written."""


@contextmanager
def interruptible(message: str, status: int) -> Iterator[None]:
    """Within it, a Ctrl-C that nothing answers ends the process with ``message`` on stderr and the exit ``status``."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals come to the main thread alone
        return
    woken, waking = socket.socketpair()
    waking.setblocking(False)
    over = threading.Event()
    before = signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
    watcher = threading.Thread(target=_watch, args=(woken, over, message, status), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        signal.set_wakeup_fd(before)
        waking.close()
        watcher.join()
        woken.close()


def _watch(woken: socket.socket, over: threading.Event, message: str, status: int) -> None:
    while numbers := woken.recv(16):
        if signal.SIGINT in numbers and not over.wait(PATIENCE):
            os.write(2, f"{message}\n".encode())
            os._exit(status)
