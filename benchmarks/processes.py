"""A measurement in a process of its own, and the memory that a process takes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def in_a_process(arguments: Sequence[str], threads: int, **environment: str) -> Any:
    """What the program that runs prints last, read as JSON, when it is called with ``arguments`` in a new process of so
    many ``threads``. Ends the program where that one fails."""
    command = [sys.executable, sys.argv[0], *arguments]
    pools = {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | pools | environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def resident() -> int:
    """Bytes of this process in memory now; `peak` begins anew with them."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def peak() -> int:
    """The most bytes that this process had in memory since `resident` told what it had, or since it began.

    ``getrusage`` does not tell: its ``ru_maxrss`` is that of the process which started this one, where that is more.
    """
    return _status("VmHWM")


def _status(name: str) -> int:
    (kibibytes,) = re.findall(rf"^{name}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(kibibytes) * 1024
